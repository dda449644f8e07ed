#include "data/sentencepiece_preflight.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "core/file.h"
#include "core/sha256.h"
#include "core/utf8.h"
#include "data/protobuf_reader.h"
#include "triforce/error.h"

namespace triforce {
namespace {

using Piece = SentencePieceModel::Piece;
using PieceType = SentencePieceModel::PieceType;

constexpr std::size_t kMaxPieces = 1'000'000;
constexpr std::size_t kMaxPieceBytes = 512;
// The library matches at most 64 user-defined pieces at one place, and writes past that.
constexpr std::size_t kMaxNestedPrefixes = 32;

// SHA-256 of the normalisation tables that SentencePiece's trainer writes, by rule and version;
// "identity" is empty.
constexpr auto kKnownCharsmaps = std::to_array<std::string_view>({
    "51d3684747b35ef99cd4802f37cc1ee0c6bec4d060814f774efb1066d3c167f2",  // nmt_nfkc, 0.1.97
    "557b5397b1133d8abb62f7923e5b53ee496d3e36b9f63fd42625077c33688a14",  // nfkc, 0.1.97
    "6cec34e8016fd0d0a2da28b60b00e36b19a275df83786bf6b494bd033c708f83",  // nmt_nfkc_cf, 0.1.97
    "b30e4085ba1fad56d2401f4612419b6b3b42c5adc1e04f3aa1806399895d6bdd",  // nfkc_cf, 0.1.97
    "1e2c7b43d3ee9755ceaa2ac335e253d8703604e0249ee1e81156c92b46423844",  // nmt_nfkc, 0.2.3
    "7e46d9e08af4b6a37991b04fb8388644c1595a0abcd0f26d6a5d575e2a3663ea",  // nfkc, 0.2.3
    "2c03512e62f9ed965ec90d85314211b63b5b8aa0395311ea2147eec9ff738907",  // nmt_nfkc_cf, 0.2.3
    "d8dfef3d6db0eef0742f8b55a73aee7fce6c1e21d26a09b8d3d4b52c42a791cb",  // nfkc_cf, 0.2.3
});

// Calls visit(reader, field) for every field of a message, in order.
template <class Visit>
void for_each_field(std::string_view message, const std::string& source, const Visit& visit) {
  ProtobufReader reader(message, source);
  for (ProtobufField f; reader.next(f);) visit(std::as_const(reader), std::as_const(f));
}

// A field that may occur once.
void once(std::uint64_t& seen, const ProtobufField& field, const std::string& source) {
  const std::uint64_t bit = std::uint64_t{1} << (field.number & 63U);
  if ((seen & bit) != 0) refuse_tokenizer(source, "field {} occurs twice", field.number);
  seen |= bit;
}

bool read_bool(const ProtobufReader& reader, const ProtobufField& field) {
  reader.expect(field, Wire::kVarint);
  return field.value != 0;
}

std::string read_text(const ProtobufReader& reader, const ProtobufField& field,
                      const std::string& source) {
  reader.expect(field, Wire::kBytes);
  if (field.bytes.size() > kMaxPieceBytes || !is_valid_utf8(field.bytes) ||
      field.bytes.find('\0') != std::string_view::npos) {
    refuse_tokenizer(source, "the text {} is too long or not UTF-8", quote_text(field.bytes));
  }
  return std::string(field.bytes);
}

// An id: an int32, written as a 64-bit varint when negative.
std::int64_t read_id(const ProtobufReader& reader, const ProtobufField& field) {
  reader.expect(field, Wire::kVarint);
  return static_cast<std::int64_t>(field.value);
}

// "<0x00>" to "<0xFF>"
bool is_byte_name(std::string_view text) {
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && hex(text[3]) && hex(text[4]) &&
         text[5] == '>';
}

Piece read_piece(std::string_view message, std::size_t id, const std::string& source) {
  Piece piece;
  float score = 0;
  std::uint64_t seen = 0;
  bool has_text = false;
  for_each_field(message, source, [&](const ProtobufReader& reader, const ProtobufField& f) {
    if (f.number <= 3) once(seen, f, source);
    if (f.number == 1) {
      reader.expect(f, Wire::kBytes);
      piece.text = f.bytes;
      has_text = true;
    } else if (f.number == 2) {
      reader.expect(f, Wire::kFixed32);
      score = std::bit_cast<float>(static_cast<std::uint32_t>(f.value));
    } else if (f.number == 3) {
      reader.expect(f, Wire::kVarint);
      if (f.value < 1 || f.value > 6) refuse_tokenizer(source, "piece {} has type {}", id, f.value);
      piece.type = static_cast<PieceType>(f.value);
    }
  });
  if (!has_text || piece.text.empty() || piece.text.size() > kMaxPieceBytes) {
    refuse_tokenizer(source, "piece {} has {} bytes, expected 1 to {}", id, piece.text.size(),
                     kMaxPieceBytes);
  }
  if (!is_valid_utf8(piece.text) || piece.text.find('\0') != std::string::npos) {
    refuse_tokenizer(source, "piece {} is {}, not UTF-8 without NUL", id, quote_text(piece.text));
  }
  if (!std::isfinite(score)) refuse_tokenizer(source, "piece {} has no finite score", id);
  if (piece.type == PieceType::kByte && !is_byte_name(piece.text)) {
    refuse_tokenizer(source, "byte piece {} is {}, expected <0x00> to <0xFF>", id,
                     quote_text(piece.text));
  }
  return piece;
}

struct Ids {
  std::int64_t unk = 0, bos = 1, eos = 2, pad = -1;  // defaults of the format
};

void read_trainer_spec(std::string_view message, SentencePieceModel& model, Ids& ids,
                       const std::string& source) {
  std::uint64_t seen = 0;
  for_each_field(message, source, [&](const ProtobufReader& reader, const ProtobufField& f) {
    const bool single = f.number == 3 || f.number == 24 || (f.number >= 35 && f.number <= 47);
    if (single) once(seen, f, source);
    switch (f.number) {
      case 3:
        reader.expect(f, Wire::kVarint);
        if (f.value != 1 && f.value != 2) {
          refuse_tokenizer(source, "model type {}, expected 1 (unigram) or 2 (BPE)", f.value);
        }
        break;
      case 24:
        if (read_bool(reader, f))
          refuse_tokenizer(source, "treat_whitespace_as_suffix is not supported");
        break;
      case 35:
        model.byte_fallback = read_bool(reader, f);
        break;
      case 40:
        ids.unk = read_id(reader, f);
        break;
      case 41:
        ids.bos = read_id(reader, f);
        break;
      case 42:
        ids.eos = read_id(reader, f);
        break;
      case 43:
        ids.pad = read_id(reader, f);
        break;
      case 44:
        model.unk_surface = read_text(reader, f, source);
        break;
      case 46:  // names of the pieces that begin and end a text
      case 47:
        read_text(reader, f, source);
        break;
      default:
        break;
    }
  });
}

void check_charsmap(std::string_view charsmap, const std::string& source) {
  if (charsmap.empty()) return;
  const std::string digest = sha256_hex(charsmap);
  if (std::ranges::find(kKnownCharsmaps, digest) != kKnownCharsmaps.end()) {
    return;
  }
  refuse_tokenizer(source,
                   "unknown normalisation table of {} bytes, sha256 {}; only those that "
                   "ship with SentencePiece are read",
                   charsmap.size(), digest);
}

void read_normalizer_spec(std::string_view message, SentencePieceModel& model,
                          const std::string& source) {
  std::uint64_t seen = 0;
  bool escapes = true;
  for_each_field(message, source, [&](const ProtobufReader& reader, const ProtobufField& f) {
    if (f.number <= 6) once(seen, f, source);
    if (f.number == 2) {
      reader.expect(f, Wire::kBytes);
      check_charsmap(f.bytes, source);
    }
    if (f.number == 3) model.add_dummy_prefix = read_bool(reader, f);
    if (f.number == 4) model.remove_extra_whitespaces = read_bool(reader, f);
    if (f.number == 5) escapes = read_bool(reader, f);
  });
  if (!escapes) refuse_tokenizer(source, "escape_whitespaces off is not supported");
}

void check_denormalizer_spec(std::string_view message, const std::string& source) {
  for_each_field(message, source, [&](const ProtobufReader& /*reader*/, const ProtobufField& f) {
    if (f.number == 2 && !f.bytes.empty())
      refuse_tokenizer(source, "a denormaliser is not supported");
  });
}

// Also counts how many user-defined pieces are prefixes of one another.
void check_unique(const std::vector<Piece>& pieces, const std::string& source) {
  std::vector<std::string_view> texts, chain;
  texts.reserve(pieces.size());
  for (const Piece& p : pieces) texts.push_back(p.text);
  std::ranges::sort(texts);
  if (const auto it = std::ranges::adjacent_find(texts); it != texts.end()) {
    refuse_tokenizer(source, "piece {} occurs twice", quote_text(*it));
  }
  texts.clear();
  for (const Piece& p : pieces) {
    if (p.type == PieceType::kUserDefined) texts.push_back(p.text);
  }
  std::ranges::sort(texts);
  for (const std::string_view text : texts) {
    while (!chain.empty() && !text.starts_with(chain.back())) chain.pop_back();
    chain.push_back(text);
    if (chain.size() > kMaxNestedPrefixes) {
      refuse_tokenizer(source, "over {} user-defined pieces begin alike", kMaxNestedPrefixes);
    }
  }
}

void check_ids(const SentencePieceModel& model, const Ids& ids, const std::string& source) {
  const auto n = static_cast<std::int64_t>(model.pieces.size());
  for (const std::int64_t id : {ids.unk, ids.bos, ids.eos, ids.pad}) {
    if (id < -1 || id >= n) refuse_tokenizer(source, "special id {} of {} pieces", id, n);
  }
  const auto count = [&](PieceType type) {
    return std::ranges::count_if(model.pieces, [&](const Piece& p) { return p.type == type; });
  };
  const auto unknown = count(PieceType::kUnknown), bytes = count(PieceType::kByte);
  if (unknown != 1) refuse_tokenizer(source, "{} unknown pieces, expected one", unknown);
  // Names are unique, so 256 byte pieces are all of them.
  if (bytes != (model.byte_fallback ? 256 : 0)) {
    refuse_tokenizer(source, "{} byte pieces, expected {}", bytes, model.byte_fallback ? 256 : 0);
  }
}

// The vocabulary of tiktoken, as Llama 3 has it: a line is a token in base64, a space, its rank.
bool is_tiktoken(std::string_view bytes) {
  constexpr std::string_view kBase64 =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space % 4 != 0) return false;
  std::string_view rank = line.substr(space + 1);
  if (!rank.empty() && rank.back() == '\r') rank.remove_suffix(1);
  return line.substr(0, space).find_first_not_of(kBase64) == std::string_view::npos &&
         !rank.empty() && rank.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

SentencePieceModel check_sentencepiece_model(std::string_view bytes, std::int64_t vocab,
                                             const std::string& source) {
  if (const std::string mistake = download_mistake(bytes); !mistake.empty()) {
    refuse_tokenizer(source, "this is {}", mistake);
  }
  if (is_tiktoken(bytes)) {
    refuse_tokenizer(source,
                     "expected a SentencePiece model, found a vocabulary of tiktoken; without it, "
                     "the tokenizer.json of the same model is read");
  }
  if (static_cast<std::int64_t>(bytes.size()) > kMaxTokenizerBytes) {
    refuse_tokenizer(source, "{} bytes, the limit is {}", bytes.size(), kMaxTokenizerBytes);
  }
  SentencePieceModel model;
  Ids ids;
  std::uint64_t seen = 0;
  for_each_field(bytes, source, [&](const ProtobufReader& reader, const ProtobufField& f) {
    if (f.number >= 1 && f.number <= 5) reader.expect(f, Wire::kBytes);
    if (f.number == 1) {
      if (model.pieces.size() >= kMaxPieces || std::cmp_greater_equal(model.pieces.size(), vocab)) {
        refuse_tokenizer(source, "more than {} pieces", std::min<std::int64_t>(vocab, kMaxPieces));
      }
      model.pieces.push_back(read_piece(f.bytes, model.pieces.size(), source));
      return;
    }
    if (f.number == 2 || f.number == 3 || f.number == 5) once(seen, f, source);
    if (f.number == 2) read_trainer_spec(f.bytes, model, ids, source);
    if (f.number == 3) read_normalizer_spec(f.bytes, model, source);
    if (f.number == 5) check_denormalizer_spec(f.bytes, source);
  });
  if (model.pieces.empty()) refuse_tokenizer(source, "no pieces: not a SentencePiece model");
  check_unique(model.pieces, source);
  check_ids(model, ids, source);
  return model;
}

}  // namespace triforce
