// Synthetic long documents: the `synthetic` dataset and half of the training text of the built-in
// pair.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace triforce {

// An English-like text of at least `min_bytes` bytes (ASCII), a pure function of (seed, index):
// integer arithmetic and Philox only, so every platform gives the same bytes, and a longer request
// begins with the shorter one's text. It ends at the end of a section, a few kilobytes at most past
// `min_bytes`.
//
// A document is a row of sections. A section is either a new page (a letter, report, diary, ...
// about one person: 5 to 9 dealings with persons, goods, sums, places and dates), or it returns to
// an earlier page: it retells most of its dealings in other words and another order, asks questions
// whose answers take their facts from it, or, seldom, quotes some lines of it. Plain prose about
// the same persons lies before and between. How far back a return goes is uniform in the logarithm
// of the distance, from 6 KiB to the whole text, but for one in five that is nearer; texts shorter
// than 12 KiB return less. So a reader who keeps only recent text misses much, and one who finds
// the old page again needs little else for some hundred tokens.
//
// Trades, goods, sums and the words and sentences between the facts are drawn as people use them:
// the k-th of a table 1/k times as often as its first (Zipf's law). Names, places and dates, which
// tell one page from another, are drawn evenly, and so are the kinds of page and of dealing.
std::string synthetic_document(std::uint64_t seed, std::uint64_t index, std::size_t min_bytes);

}  // namespace triforce
