// Every data set makes prompts of its documents with this.
#pragma once
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/utf8.h"
#include "data/datasets.h"
#include "triforce/error.h"

namespace triforce {

[[noreturn]] inline void throw_no_tokenizer(std::string_view name) {
  throw_input("NoTokenizer",
              "--dataset {}: expected a target with a tokenizer.model or tokenizer.json, found "
              "none; an .ids file needs no tokenizer: scripts/encode_dataset.py makes one of text",
              name);
}

// A text with what stands before and after it in the prompt. The text alone is cut.
struct Document {
  std::string_view text, prefix = {}, suffix = {};
};

// Collects prompts until there are enough of them.
class PromptCollector {
 public:
  PromptCollector(const DatasetRequest& request, const Encode& encode, Dataset& out)
      : request_(request), encode_(encode), out_(out) {
    if (request.bos >= 0) first_.push_back(request.bos);
  }

  // Returns the tokens that every prompt begins with: BOS, if the model has one.
  std::span<const Token> first() const { return first_; }

  // True if there is room for another document. Throws what the request's check_stop throws.
  bool wants_more() const {
    if (request_.check_stop) request_.check_stop();
    return static_cast<std::int64_t>(out_.prompts.size()) < request_.prompts;
  }

  // Throws if so many prompts are too much for the memory given.
  void check_room(std::int64_t prompts) const {
    const std::int64_t max_prompts =
        request_.max_bytes / static_cast<std::int64_t>(sizeof(Token)) / request_.prefill;
    if (prompts <= max_prompts) return;
    throw_resources("MemoryLimit",
                    "--prompts: expected at most {} prompts of {} tokens in {} bytes of memory, "
                    "found {} or more",
                    max_prompts, request_.prefill, request_.max_bytes, prompts);
  }

  void add_text(const Document& document, const std::string& source) {
    const std::vector<Token> suffix = continuation_ids(document.suffix);
    std::vector<Token> ids = encode(document.prefix);
    const std::size_t prefix = ids.size();
    const std::size_t frame = first_.size() + ids.size() + suffix.size();
    if (frame > first_.size() && frame >= static_cast<std::size_t>(request_.prefill)) {
      throw_input(
          "InvalidDataset",
          "{}: expected a --prefill above the {} tokens of BOS, prefix and suffix, found {}",
          source, frame, request_.prefill);
    }
    const std::int64_t others = request_.prompts - std::ssize(out_.prompts) - 1;
    const std::int64_t wanted = request_.prefill + request_.stride * others;
    // A beginning of this many bytes holds enough tokens unless they are unusually long.
    std::size_t bytes = static_cast<std::size_t>(wanted) * 8;
    while (true) {
      ids = encode(std::string(document.prefix).append(clip(document.text, bytes)));
      if (bytes >= document.text.size() || static_cast<std::int64_t>(ids.size()) > wanted) {
        break;
      }
      bytes *= 4;
    }
    add_ids(ids, suffix, source, {}, prefix);
  }

  // Ids without BOS, cut to what the prompt has room for before those of the suffix. With a stride
  // further prompts begin as many tokens later, after the same `prefix` first ids.
  void add_ids(std::span<const Token> ids, std::span<const Token> suffix, const std::string& source,
               std::span<const Token> answer = {}, std::size_t prefix = 0) {
    const std::size_t frame = first_.size() + suffix.size();
    const auto prefill = static_cast<std::size_t>(request_.prefill);
    if (frame + ids.size() < prefill) {
      ++out_.info.n_skipped;
      return;
    }
    const std::size_t room = prefill - frame;
    const auto stride = static_cast<std::size_t>(request_.stride);
    for (std::size_t from = 0; from + room <= ids.size() && wants_more(); from += stride) {
      check_room(static_cast<std::int64_t>(out_.prompts.size()) + 1);
      std::vector<Token> tokens;
      tokens.reserve(prefill);
      const auto add = [&](std::span<const Token> more) {
        tokens.insert(tokens.end(), more.begin(), more.end());
      };
      add(first_);
      add(ids.first(prefix));
      add(ids.subspan(prefix + from, room - prefix));
      add(suffix);
      out_.prompts.push_back({std::move(tokens),
                              from == 0 ? source : fmt::format("{}, from token {}", source, from),
                              {answer.begin(), answer.end()}});
      if (stride == 0) break;
    }
  }

  // All of a text, unless that is too many tokens for a prompt, or too few.
  void add_whole(const std::string& text, const std::string& source) {
    const std::vector<Token> ids = encode(text);
    std::vector<Token> tokens = first_;
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    if (tokens.size() < 2 || std::ssize(tokens) > request_.prefill) {
      skip();
      return;
    }
    check_room(std::ssize(out_.prompts) + 1);
    out_.prompts.push_back({std::move(tokens), source});
  }
  void skip() { ++out_.info.n_skipped; }

  // The prompt that was added last.
  Prompt& last() { return out_.prompts.back(); }

  // Ids of a text as after a line end: a tokenizer treats the beginning of a text unlike its
  // middle.
  std::vector<Token> continuation_ids(std::string_view text) const {
    if (text.empty()) return {};
    const std::vector<Token> before = encode("\n");
    const std::vector<Token> both = encode(std::string("\n").append(text));
    const auto [mid, end] = std::mismatch(before.begin(), before.end(), both.begin(), both.end());
    if (mid != before.end()) return encode(text);  // the line end became part of another token
    return {end, both.end()};
  }

 private:
  std::vector<Token> encode(std::string_view text) const {
    if (!encode_) throw_no_tokenizer(request_.name);
    if (text.empty()) return {};
    std::vector<Token> ids = encode_(text);
    if (request_.check_stop) request_.check_stop();
    return ids;
  }

  // The longest prefix of at most `bytes` bytes that does not cut a character.
  static std::string_view clip(std::string_view text, std::size_t bytes) {
    if (bytes >= text.size()) return text;
    const std::string_view head = text.substr(0, bytes);
    return head.substr(0, complete_utf8_prefix(head));
  }

  const DatasetRequest& request_;
  std::vector<Token> first_;
  const Encode& encode_;
  Dataset& out_;
};

}  // namespace triforce
