#include "data/generated_prompts.h"

#include <cmath>

#include "core/sha256.h"
#include "data/synthetic.h"
#include "data/synthetic_cast.h"

namespace triforce {
namespace {

constexpr std::string_view kTold = "\nThe pass key is:";
constexpr std::string_view kAsked = "\nWhat is the pass key? The pass key is:";

// A model without a tokenizer reads the bytes of the text as ids.
std::vector<Token> bytes_as_ids(std::string_view text, std::int64_t vocab) {
  constexpr std::int64_t kControl = 3;  // unknown, BOS, EOS
  const std::int64_t first = vocab > 2 * kControl ? kControl : 0;
  std::vector<Token> ids;
  ids.reserve(text.size());
  for (const char c : text) {
    ids.push_back(static_cast<Token>(first + static_cast<unsigned char>(c) % (vocab - first)));
  }
  return ids;
}

struct Needle {
  std::vector<Token> told, key, asked;  // a sentence, what stands at its end, and the question
};

// The key's ids are those that it has after a line end, or those of its bytes.
Needle needle_of(const std::string& key, const DatasetRequest& request, const Encode& encode,
                 const PromptCollector& collect) {
  const auto ids = [&](const std::string& text) {
    return encode ? collect.continuation_ids(text) : bytes_as_ids(text, request.vocab);
  };
  const std::string told(kTold);
  Needle n{ids(told + ' ' + key), {}, ids(std::string(kAsked))};
  const std::vector<Token> before = ids(told);
  const auto differs = std::mismatch(before.begin(), before.end(), n.told.begin(), n.told.end());
  n.key.assign(differs.second, n.told.end());
  const std::vector<Token> line_end = ids("\n");
  n.told.insert(n.told.end(), line_end.begin(), line_end.end());
  return n;
}

}  // namespace

void make_synthetic(const DatasetRequest& request, const Encode& encode, PromptCollector& collect,
                    DataInfo& info) {
  info.bytes_as_ids = !encode;
  collect.check_room(request.prompts);  // here it is known how many there will be
  Sha256 hash;
  for (std::uint64_t i = 0; collect.wants_more(); ++i) {
    // Grows until the document has enough tokens; a longer request begins with the shorter text.
    for (std::int64_t bytes = request.prefill * 6;; bytes *= 2) {
      const std::string text = synthetic_document(request.seed, i, static_cast<std::size_t>(bytes));
      const std::int64_t skipped = info.n_skipped;
      if (encode) {
        collect.add_text({text}, fmt::format("synthetic #{}", i));
      } else {
        collect.add_ids(bytes_as_ids(text, request.vocab), {},
                        fmt::format("synthetic #{}, bytes", i));
      }
      if (info.n_skipped == skipped) {
        hash.update(text);
        break;
      }
      info.n_skipped = skipped;
    }
  }
  info.sha256 = hash.hex();
}

std::string pass_key(std::uint64_t seed, std::uint64_t index) {
  constexpr std::string_view kUrlSafe =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  synthetic::TextRandom random(seed, ~index);  // documents count from the other end
  std::string key;
  for (std::size_t i = 0; i < kPassKeyChars; ++i) key += kUrlSafe[random.below(kUrlSafe.size())];
  return key;
}

void make_needles(const DatasetRequest& request, const Encode& encode, PromptCollector& collect,
                  DataInfo& info) {
  info.bytes_as_ids = !encode;
  collect.check_room(request.prompts);
  Sha256 hash;
  for (std::uint64_t i = 0; collect.wants_more(); ++i) {
    const std::string key = pass_key(request.seed, i);
    const Needle needle = needle_of(key, request, encode, collect);
    const auto frame = static_cast<std::int64_t>(collect.first().size() + needle.told.size() +
                                                 needle.asked.size());
    if (frame > request.prefill) {
      throw_usage(
          "--prefill: expected at least the {} tokens of a pass key and its question, found {}",
          frame, request.prefill);
    }
    if (request.generated > static_cast<std::int64_t>(needle.key.size())) {
      throw_usage("--gen-len: expected at most the {} tokens of pass key #{}, found {}",
                  needle.key.size(), i, request.generated);
    }
    const std::int64_t before =
        std::llround(request.needle_depth * static_cast<double>(request.prefill - frame));
    for (std::int64_t bytes = request.prefill * 6;; bytes *= 2) {
      const std::string text = synthetic_document(request.seed, i, static_cast<std::size_t>(bytes));
      std::vector<Token> ids = encode ? encode(text) : bytes_as_ids(text, request.vocab);
      if (static_cast<std::int64_t>(ids.size()) < request.prefill - frame) continue;
      ids.insert(ids.begin() + before, needle.told.begin(), needle.told.end());
      collect.add_ids(ids, needle.asked, fmt::format("needle #{}", i), needle.key);
      hash.update(fmt::format("{}\n{}\n{}\n", text, key, before));
      break;
    }
  }
  info.sha256 = hash.hex();
}

}  // namespace triforce
