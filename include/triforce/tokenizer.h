// Text to tokens and back: a SentencePiece model (tokenizer.model), checked before it is loaded.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/tensor.h"

namespace triforce {

// Immutable and safe to share between threads. Move-only.
class Tokenizer {
 public:
  // `path` is a tokenizer.model, or the checkpoint folder that holds one. `vocab` is the model's
  // vocabulary size: no more pieces than that may be there.
  // Throws Error(kBadInput): InvalidTokenizer, or as reading files does (FileNotFound, ...).
  static Tokenizer open(const std::filesystem::path& path, std::int64_t vocab);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ids in [0, vocab), without BOS. Malformed UTF-8 becomes U+FFFD. Linear in the length of
  // ordinary text.
  std::vector<Token> encode(std::string_view text) const;

  const std::string& sha256() const;  // of the file, hex

  // Decodes a growing sequence: every push returns the text that has become certain, so that a
  // terminal never sees half a character. All pushes and finish() together are well-formed UTF-8,
  // as SentencePiece decodes: control pieces vanish, the space that encode put before the text is
  // taken off. Ids beyond the pieces, which a padded vocabulary has, become U+FFFD.
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

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace triforce
