// Tests: tests/data/datasets_test.cpp
#include "data/ruler.h"

#include <algorithm>
#include <map>
#include <numbers>
#include <numeric>
#include <set>

#include "core/sha256.h"
#include "data/synthetic.h"
#include "data/synthetic_cast.h"
#include "triforce/enum_names.h"

namespace triforce {
namespace {

using synthetic::TextRandom;
using synthetic::Texts;

constexpr int kNeedles = 4, kChain = 5;
constexpr std::size_t kCommon = 10, kFrequent = 3;
constexpr std::int64_t kCommonTimes = 30, kOtherTimes = 3;
constexpr std::int64_t kLeastList = 100;  // words, so that the frequent ones are told apart

// "a", "a and b", "a, b and c"
std::string listed(const Texts& items, std::string_view before_last = " and ") {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    text += i == 0 ? "" : i + 1 == items.size() ? before_last : std::string_view(", ");
    text += items[i];
  }
  return text;
}

// Strings of which none is given twice.
class Distinct {
 public:
  template <class Make>
  std::string make(const Make& make_one) {
    while (true) {
      const auto [it, is_new] = seen_.insert(make_one());
      if (is_new) return *it;
    }
  }

 private:
  std::set<std::string> seen_;
};

std::string number_of(TextRandom& random, int digits) {
  std::string number(1, static_cast<char>('1' + random.below(9)));
  while (std::ssize(number) < digits) number += static_cast<char>('0' + random.below(10));
  return number;
}

std::string thing_of(TextRandom& random) {
  const std::vector<synthetic::GoodsKind>& kinds = synthetic::words().goods;
  const synthetic::GoodsKind& kind = kinds[random.below(kinds.size())];
  const std::string_view material = random.pick_name(kind.materials);
  return fmt::format("{} {}", material, random.pick_name(kind.nouns));
}

std::string variable_of(TextRandom& random) {
  std::string name;
  while (name.size() < 5) name += static_cast<char>('A' + random.below(26));
  return name;
}

std::string word_of(TextRandom& random) {
  constexpr std::string_view kFirst = "bdfgklmnprstvz", kSecond = "aeiou";
  std::string word;
  for (int i = 0; i < 4; ++i) {
    word += kFirst[random.below(kFirst.size())];
    word += kSecond[random.below(kSecond.size())];
  }
  return word;
}

template <class T>
void shuffle(std::vector<T>& items, TextRandom& random) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

// What a prompt is made of. All but the question are whole lines.
struct Parts {
  Texts intro;  // first
  Texts told;   // between the lines of a document, in this order
  Texts list;   // behind those
  std::string asked;
  Texts expected;  // in the answer
};

Parts needles(RulerTask task, TextRandom& random) {
  Distinct things, numbers;
  const bool one_thing = task == RulerTask::kSingle || task == RulerTask::kMultiValue;
  const int told = task == RulerTask::kSingle ? 1 : kNeedles;
  Parts p;
  p.intro = {"Some things in this text have secret numbers. They are asked for at its end."};
  Texts asked_things;
  for (int i = 0; i < told; ++i) {
    const bool known = one_thing && i > 0;
    const std::string thing =
        known ? asked_things.front() : things.make([&] { return thing_of(random); });
    const std::string number = numbers.make([&] { return number_of(random, 7); });
    p.told.push_back(fmt::format(
        "{} the {} is {}.",
        task == RulerTask::kMultiValue ? "One of the secret numbers of" : "The secret number of",
        thing, number));
    if (task == RulerTask::kMultiKey && i > 0) continue;
    if (!known) asked_things.push_back(thing);
    p.expected.push_back(number);
  }
  shuffle(p.told, random);
  for (std::string& thing : asked_things) thing.insert(0, "the ");
  const bool several = p.expected.size() > 1;
  const std::string what =
      fmt::format("secret number{} of {}", several ? "s" : "", listed(asked_things));
  const char* is = several ? "are" : "is";
  p.asked = fmt::format("Question: What {} {} {}?\nAnswer: The {} {}", is,
                        task == RulerTask::kMultiValue ? "all the" : "the", what, what, is);
  return p;
}

Parts variables(TextRandom& random) {
  Distinct names, values;
  const auto chain = [&] {
    Parts p;
    const std::string value = values.make([&] { return number_of(random, 5); });
    for (int i = 0; i < kChain; ++i) {
      const std::string name = names.make([&] { return variable_of(random); });
      p.told.push_back(
          fmt::format("VAR {} = {}", name, i == 0 ? value : "VAR " + p.expected.back()));
      p.expected.push_back(name);
    }
    p.asked = fmt::format(
        "Question: Which {} variables have the value {}?\nAnswer: The variables with the value {} "
        "are",
        kChain, value, value);
    return p;
  };
  const Parts example = chain();
  Parts p = chain();
  p.intro = {"Some lines of this text set a variable, to a number or to another variable."};
  p.intro.insert(p.intro.end(), example.told.begin(), example.told.end());
  p.intro.push_back(fmt::format("{} {}.\n", example.asked, listed(example.expected, ", ")));
  return p;
}

std::string ask_for_words(std::size_t words, std::string_view which) {
  return fmt::format(
      "Question: Which {} words are the most {} in the list above?\nAnswer: The {} most {} words "
      "are",
      words, which, words, which);
}

void add_times(Texts& list, const std::string& word, std::int64_t times) {
  list.insert(list.end(), static_cast<std::size_t>(times), word);
}

// Tokens of a line with its end.
using LineTokens = std::function<std::int64_t(const std::string& line)>;

std::int64_t tokens_of(const Texts& lines, const LineTokens& tokens) {
  std::int64_t sum = 0;
  for (const std::string& line : lines) sum += tokens(line);
  return sum;
}

Parts common_words(std::int64_t room, const LineTokens& tokens, TextRandom& random) {
  constexpr std::size_t kExample = 3;  // common words of the example
  Distinct all;
  const auto word = [&] { return all.make([&] { return word_of(random); }); };
  const std::string intro = "Here is a list of words. Some stand in it more often than the others.";
  Parts example, p;
  for (std::size_t i = 0; i < kExample; ++i) {
    example.expected.push_back(word());
    add_times(example.list, example.expected.back(), 4);
  }
  for (std::size_t i = 0; i < 2 * kExample; ++i) add_times(example.list, word(), 1);
  shuffle(example.list, random);
  p.intro.push_back(intro);
  p.intro.insert(p.intro.end(), example.list.begin(), example.list.end());
  p.intro.push_back(
      fmt::format("{} {}.\n", ask_for_words(kExample, "common"), listed(example.expected, ", ")));
  p.intro.push_back(intro);
  p.asked = ask_for_words(kCommon, "common");
  for (std::size_t i = 0; i < kCommon; ++i) {
    p.expected.push_back(word());
    add_times(p.list, p.expected.back(), kCommonTimes);
  }
  room -= tokens_of(p.intro, tokens) + tokens_of(p.list, tokens);
  while (true) {
    const std::string other = word();
    room -= kOtherTimes * tokens(other);
    if (room < 0) break;
    add_times(p.list, other, kOtherTimes);
  }
  shuffle(p.list, random);
  return p;
}

Parts frequent_words(std::int64_t room, const LineTokens& tokens, TextRandom& random) {
  constexpr double kZeta2 = std::numbers::pi * std::numbers::pi / 6;
  Distinct all;
  Texts words;                      // by rank
  std::vector<std::int64_t> sizes;  // tokens of each
  // How often each word stands in a list of about so many, and what that takes.
  const auto counts_of = [&](std::int64_t n) {
    std::vector<std::int64_t> counts;
    for (double k = 1;; ++k) {
      const auto times = static_cast<std::int64_t>(static_cast<double>(n) / (k * k * kZeta2));
      if (times == 0) return counts;
      counts.push_back(times);
    }
  };
  const auto list_tokens = [&](const std::vector<std::int64_t>& counts) {
    while (words.size() < counts.size()) {
      words.push_back(all.make([&] { return word_of(random); }));
      sizes.push_back(tokens(words.back()));
    }
    return std::inner_product(counts.begin(), counts.end(), sizes.begin(), std::int64_t{0});
  };
  Parts p;
  p.intro = {"Here is a list of words of a code. Some stand in it more often than the others."};
  p.asked = ask_for_words(kFrequent, "frequent");
  room -= tokens_of(p.intro, tokens);
  std::int64_t least = kLeastList, above = std::max(room, least) + 1;
  while (above - least > 1) {
    const std::int64_t n = std::midpoint(least, above);
    (list_tokens(counts_of(n)) <= room ? least : above) = n;
  }
  const std::vector<std::int64_t> counts = counts_of(least);
  list_tokens(counts);
  for (std::size_t k = 0; k < counts.size(); ++k) add_times(p.list, words[k], counts[k]);
  shuffle(p.list, random);
  p.expected.assign(words.begin(), words.begin() + kFrequent);
  return p;
}

// The last `tokens` of the first lines of a document that have so many, in lines.
struct Haystack {
  std::vector<Token> ids;
  std::vector<std::size_t> starts;  // of whole lines, and the end
};

template <class LineIds>
Haystack haystack(std::uint64_t seed, std::uint64_t index, std::size_t tokens,
                  const LineIds& line_ids) {
  std::vector<Token> ids;
  std::vector<std::size_t> starts;
  for (std::size_t bytes = tokens * 6 + 1; ids.size() < tokens; bytes *= 2) {
    const std::string text = synthetic_document(seed, index, bytes);
    ids.clear();
    starts.clear();
    for (std::size_t at = 0; at < text.size() && ids.size() < tokens;) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      if (end > at) {
        starts.push_back(ids.size());
        const std::vector<Token>& line = line_ids(text.substr(at, end - at));
        ids.insert(ids.end(), line.begin(), line.end());
      }
      at = end + 1;
    }
  }
  const std::size_t cut = ids.size() - tokens;
  Haystack h;
  h.ids.assign(ids.begin() + static_cast<std::ptrdiff_t>(cut), ids.end());
  for (const std::size_t start : starts) {
    if (start >= cut) h.starts.push_back(start - cut);
  }
  h.starts.push_back(tokens);
  return h;
}

}  // namespace

std::optional<RulerTask> find_ruler_task(std::string_view name) {
  constexpr auto kNames = names_of(RulerTask{});
  const auto* const it = std::ranges::find(kNames, name);
  if (it == kNames.end()) return std::nullopt;
  return static_cast<RulerTask>(it - kNames.begin());
}

void make_ruler(RulerTask task, const DatasetRequest& request, PromptCollector& collect,
                DataInfo& info) {
  collect.check_room(request.prompts);
  std::map<std::string, std::vector<Token>> known;  // of a prompt, whose words come again
  const auto line_ids = [&](const std::string& line) -> const std::vector<Token>& {
    const auto [it, is_new] = known.try_emplace(line);
    std::vector<Token>& ids = it->second;
    if (is_new) ids = collect.continuation_ids(line + '\n');
    if (ids.empty()) {
      throw_input("InvalidDataset",
                  "--dataset {}: expected a tokenizer with ids for {}, found none", request.name,
                  quote_text(line));
    }
    return ids;
  };
  const auto tokens = [&](const std::string& line) { return std::ssize(line_ids(line)); };
  Sha256 hash;
  for (std::uint64_t i = 0; collect.wants_more(); ++i) {
    known.clear();
    // Documents and pass keys count from the two ends of the numbers.
    TextRandom random(request.seed,
                      ((std::uint64_t{1} << 8) + static_cast<std::uint64_t>(task)) << 48 | i);
    const std::string source = fmt::format("{} #{}", request.name, i);
    const std::int64_t room = request.prefill - std::ssize(collect.first());
    Parts p;
    if (task == RulerTask::kVariables) {
      p = variables(random);
    } else if (task == RulerTask::kCommonWords) {
      p = common_words(room - tokens(ask_for_words(kCommon, "common")), tokens, random);
    } else if (task == RulerTask::kFrequentWords) {
      p = frequent_words(room - tokens(ask_for_words(kFrequent, "frequent")), tokens, random);
    } else {
      p = needles(task, random);
    }
    const std::vector<Token> asked = collect.continuation_ids(p.asked);
    const std::int64_t taken = tokens_of(p.intro, tokens) + tokens_of(p.told, tokens) +
                               tokens_of(p.list, tokens) + std::ssize(asked);
    if (taken > room) {
      throw_usage("--prefill: expected at least the {} tokens of {} and its question, found {}",
                  taken + std::ssize(collect.first()), source, request.prefill);
    }
    const std::int64_t answer = std::ssize(collect.continuation_ids(listed(p.expected, ", ")));
    if (request.generated > 0 && request.generated < answer) {
      throw_usage("--gen-len: expected at least the {} tokens of the answer to {}, found {}",
                  answer, source, request.generated);
    }
    std::vector<Token> ids;
    const auto add = [&](const std::vector<Token>& more) {
      ids.insert(ids.end(), more.begin(), more.end());
    };
    for (const std::string& line : p.intro) add(line_ids(line));
    const Haystack hay =
        haystack(request.seed, i, static_cast<std::size_t>(room - taken), line_ids);
    std::vector<std::size_t> places(p.told.size());
    for (std::size_t& place : places) place = hay.starts[random.below(hay.starts.size())];
    std::ranges::sort(places);
    std::size_t at = 0;
    for (std::size_t t = 0; t <= places.size(); ++t) {
      const std::size_t end = t < places.size() ? places[t] : hay.ids.size();
      ids.insert(ids.end(), hay.ids.begin() + static_cast<std::ptrdiff_t>(at),
                 hay.ids.begin() + static_cast<std::ptrdiff_t>(end));
      if (t < places.size()) add(line_ids(p.told[t]));
      at = end;
    }
    for (const std::string& line : p.list) add(line_ids(line));
    collect.add_ids(ids, asked, source);
    collect.last().expected = p.expected;
    hash.update(std::as_bytes(std::span(collect.last().tokens)));
    hash.update(listed(p.expected, ", "));
  }
  info.sha256 = hash.hex();
}

}  // namespace triforce
