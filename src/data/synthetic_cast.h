// The synthetic documents speak of these: persons, places and dealings, drawn at random.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/synthetic_words.h"
#include "triforce/error.h"
#include "triforce/random.h"

namespace triforce::synthetic {

// A sequence of 32-bit words, its own Philox counter space (the last word of the counter is a tag
// that no Purpose uses).
class TextRandom {
 public:
  TextRandom(std::uint64_t seed, std::uint64_t index)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        index_{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32)} {}

  // Uniform in [0, n) up to a bias of n / 2^32.
  std::size_t below(std::size_t n) {
    return static_cast<std::size_t>((std::uint64_t{next()} * n) >> 32);
  }
  bool chance(std::size_t percent) { return below(100) < percent; }
  // k in [0, n) with a probability proportional to 1 / (k + 1) (Zipf's law), n at most kMaxRanks.
  std::size_t rank(std::size_t n) {
    TF_CHECK(n >= 1 && n <= kMaxRanks, "{} words", n);
    const auto end = kZipf.begin() + static_cast<std::ptrdiff_t>(n);
    return static_cast<std::size_t>(std::upper_bound(kZipf.begin(), end, below(end[-1])) -
                                    kZipf.begin());
  }
  // Words that stand at the front of their list are the frequent ones.
  std::string_view pick(const Texts& texts) { return texts[rank(texts.size())]; }
  // Any as often as any other, as what tells one person from another.
  std::string_view pick_name(const Texts& names) { return names[below(names.size())]; }

 private:
  static constexpr std::size_t kMaxRanks = 128;
  // Sums of 2^16 / (k + 1) over the ranks up to k.
  static constexpr auto kZipf = [] {
    std::array<std::size_t, kMaxRanks> sums{};
    std::size_t sum = 0;
    for (std::size_t k = 0; k < kMaxRanks; ++k) sums[k] = sum += (std::size_t{1} << 16) / (k + 1);
    return sums;
  }();

  std::uint32_t next() {
    if (used_ == 4) {
      block_ = {counter_++, index_[0], index_[1], 0x54584554u};
      philox4x32_10(block_.data(), key_[0], key_[1]);
      used_ = 0;
    }
    return block_[used_++];
  }

  std::array<std::uint32_t, 2> key_, index_;
  std::array<std::uint32_t, 4> block_{};
  std::uint32_t counter_ = 0;
  std::size_t used_ = 4;
};

struct Person {
  std::string_view given, family, title;
  bool is_woman = false;
  std::size_t trade = 0;
};

// A Fact is one dealing of a page's subject; the text is rendered from it whenever it is told.
// `person` and `place` are of the cast, all others but `hundreds` (0: none) and the last two are of
// tables.
struct Fact {
  std::size_t deal = 0, wording = 0, person = 0, place = 0;
  std::size_t trade = 0, goods = 0, adjective = 0, material = 0, noun = 0;
  std::size_t hundreds = 0, sum = 0, coin = 0, day = 0, month = 0;
  std::size_t begin = 0, size = 0;  // where the page has it, in the text
};

// A Cast has all persons and places of a document, in the order in which they entered it.
class Cast {
 public:
  explicit Cast(TextRandom& random) : random_(random) {}

  const Person& person(std::size_t i) const { return people_[i]; }
  const std::string& place(std::size_t i) const { return places_[i]; }

  // Each returns an index. A draw decides whether it is new or known.
  std::size_t new_person();
  std::size_t some_person();
  std::size_t other_person(std::size_t subject);  // not `subject`
  std::size_t some_place();

  // The rest of the dealing is drawn, but for which deal it is.
  Fact new_fact(std::size_t person, std::size_t place);

 private:
  TextRandom& random_;
  std::vector<Person> people_;
  std::vector<std::string> places_;
};

}  // namespace triforce::synthetic
