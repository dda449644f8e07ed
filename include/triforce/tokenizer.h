// Text to tokens and back: by a SentencePiece model (tokenizer.model), or by the byte-pair encoding
// of a tokenizer.json. Both files are checked before anything believes them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/tensor.h"

namespace triforce {

// Immutable and safe to share between threads. Move-only.
class Tokenizer {
 public:
  // Returns the tokenizer.model of a checkpoint's folder, else its tokenizer.json; empty if it has
  // neither. Throws Error(kBadInput) where one is no file of the folder that can be read.
  static std::filesystem::path find(const std::filesystem::path& folder);
  // Reads such a file; one whose name ends in .json is a tokenizer.json. `vocab` is the model's
  // vocabulary size: ids lie below it. Throws Error(kBadInput): InvalidTokenizer;
  // UnsupportedTokenizer, which names the component of a tokenizer.json that is not understood; or
  // as reading files does (FileNotFound, ...).
  static Tokenizer open(const std::filesystem::path& file, std::int64_t vocab);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ids in [0, vocab), without BOS. Malformed UTF-8 becomes U+FFFD. Linear in the length of
  // ordinary text. The added tokens of a tokenizer.json are found in the text; the control pieces
  // of a SentencePiece model are not. Throws Error(kBadInput, "LimitExceeded") where a pattern of a
  // tokenizer.json takes too many steps.
  std::vector<Token> encode(std::string_view text) const;

  const std::string& sha256() const;  // of the file, hex
  // The token that the file puts before every text. Inner nothing: none. Outer nothing: the file
  // does not say, as no tokenizer.model does.
  const std::optional<std::optional<Token>>& first() const;
  // The id of a token as the file writes it ("<|endoftext|>"); nothing if there is none.
  std::optional<Token> id_of(std::string_view token) const;
  // Whether every id has the same token in both files.
  bool has_same_ids(const Tokenizer& other) const;

  // Decodes a growing sequence: every push returns the text that has become certain, so that a
  // terminal never sees half a character. All pushes and finish() together are well-formed UTF-8,
  // as the tokenizer's own library decodes: control pieces and special tokens vanish, the space
  // that encode put before the text is taken off. Ids without a token, which a padded vocabulary
  // has, become U+FFFD.
  class Stream {
   public:
    // `at_start`: the first token begins the text; false: it continues one, and a leading space
    // stays.
    Stream(const Tokenizer& tokenizer, bool at_start);
    std::string push(Token id);  // throws kInternal for an id outside [0, vocab)
    std::string finish();        // bytes of a character that never became whole, as U+FFFD

   private:
    const Tokenizer* tokenizer_;
    std::string pending_;  // bytes of byte pieces, not a whole character yet
    bool strip_space_, space_stripped_ = false, empty_ = true;
  };

  struct Impl;  // src/data/tokenizer_impl.h

 private:
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace triforce
