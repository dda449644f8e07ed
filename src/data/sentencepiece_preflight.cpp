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

// SHA-256 of the normalisation tables that SentencePiece's trainer writes; "identity" is empty.
struct KnownCharsmap {
  const char* rule_and_version;
  std::string_view sha256;
};
constexpr std::array kKnownCharsmaps = {
    KnownCharsmap{"nmt_nfkc, 0.1.97",
                  "51d3684747b35ef99cd4802f37cc1ee0c6bec4d060814f774efb1066d3c167f2"},
    KnownCharsmap{"nfkc, 0.1.97",
                  "557b5397b1133d8abb62f7923e5b53ee496d3e36b9f63fd42625077c33688a14"},
    KnownCharsmap{"nmt_nfkc_cf, 0.1.97",
                  "6cec34e8016fd0d0a2da28b60b00e36b19a275df83786bf6b494bd033c708f83"},
    KnownCharsmap{"nfkc_cf, 0.1.97",
                  "b30e4085ba1fad56d2401f4612419b6b3b42c5adc1e04f3aa1806399895d6bdd"},
    KnownCharsmap{"nmt_nfkc, 0.2.3",
                  "1e2c7b43d3ee9755ceaa2ac335e253d8703604e0249ee1e81156c92b46423844"},
    KnownCharsmap{"nfkc, 0.2.3",
                  "7e46d9e08af4b6a37991b04fb8388644c1595a0abcd0f26d6a5d575e2a3663ea"},
    KnownCharsmap{"nmt_nfkc_cf, 0.2.3",
                  "2c03512e62f9ed965ec90d85314211b63b5b8aa0395311ea2147eec9ff738907"},
    KnownCharsmap{"nfkc_cf, 0.2.3",
                  "d8dfef3d6db0eef0742f8b55a73aee7fce6c1e21d26a09b8d3d4b52c42a791cb"},
};

[[noreturn]] void bad(const std::string& source, const std::string& what) {
  throw_input("InvalidTokenizer", "{}: {}", source, what);
}

// A field that may occur once.
void once(std::uint64_t& seen, const ProtobufField& field, const std::string& source) {
  const std::uint64_t bit = std::uint64_t{1} << (field.number & 63U);
  if ((seen & bit) != 0) bad(source, fmt::format("field {} occurs twice", field.number));
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
    bad(source, fmt::format("the text {} is too long or not UTF-8", quote_text(field.bytes)));
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
  ProtobufReader reader(message, source);
  ProtobufField f;
  Piece piece;
  std::uint64_t seen = 0;
  bool has_text = false;
  while (reader.next(f)) {
    if (f.number <= 3) once(seen, f, source);
    if (f.number == 1) {
      reader.expect(f, Wire::kBytes);
      piece.text = f.bytes;
      has_text = true;
    } else if (f.number == 2) {
      reader.expect(f, Wire::kFixed32);
      piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(f.value));
    } else if (f.number == 3) {
      reader.expect(f, Wire::kVarint);
      if (f.value < 1 || f.value > 6) bad(source, fmt::format("piece {} has type {}", id, f.value));
      piece.type = static_cast<PieceType>(f.value);
    }
  }
  if (!has_text || piece.text.empty() || piece.text.size() > kMaxPieceBytes) {
    bad(source, fmt::format("piece {} has {} bytes, expected 1 to {}", id, piece.text.size(),
                            kMaxPieceBytes));
  }
  if (!is_valid_utf8(piece.text) || piece.text.find('\0') != std::string::npos) {
    bad(source, fmt::format("piece {} is {}, not UTF-8 without NUL", id, quote_text(piece.text)));
  }
  if (!std::isfinite(piece.score)) bad(source, fmt::format("piece {} has no finite score", id));
  if (piece.type == PieceType::kByte && !is_byte_name(piece.text)) {
    bad(source,
        fmt::format("byte piece {} is {}, expected <0x00> to <0xFF>", id, quote_text(piece.text)));
  }
  return piece;
}

struct Ids {
  std::int64_t unk = 0, bos = 1, eos = 2, pad = -1;  // defaults of the format
};

void read_trainer_spec(std::string_view message, SentencePieceModel& model, Ids& ids,
                       const std::string& source) {
  ProtobufReader reader(message, source);
  ProtobufField f;
  std::uint64_t seen = 0;
  while (reader.next(f)) {
    const bool single = f.number == 3 || f.number == 24 || (f.number >= 35 && f.number <= 47);
    if (single) once(seen, f, source);
    switch (f.number) {
      case 3:
        reader.expect(f, Wire::kVarint);
        if (f.value != 1 && f.value != 2) {
          bad(source, fmt::format("model type {}, expected 1 (unigram) or 2 (BPE)", f.value));
        }
        model.algorithm = static_cast<SentencePieceModel::Algorithm>(f.value);
        break;
      case 24:
        if (read_bool(reader, f)) bad(source, "treat_whitespace_as_suffix is not supported");
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
      case 46:
        model.bos_piece = read_text(reader, f, source);
        break;
      case 47:
        model.eos_piece = read_text(reader, f, source);
        break;
      default:
        break;
    }
  }
}

void check_charsmap(std::string_view charsmap, const std::string& source) {
  if (charsmap.empty()) return;
  const std::string digest = sha256_hex(charsmap);
  for (const KnownCharsmap& known : kKnownCharsmaps) {
    if (known.sha256 == digest) return;
  }
  bad(source, fmt::format("unknown normalisation table of {} bytes, sha256 {}; only those that "
                          "ship with SentencePiece are read",
                          charsmap.size(), digest));
}

void read_normalizer_spec(std::string_view message, SentencePieceModel& model,
                          const std::string& source) {
  ProtobufReader reader(message, source);
  ProtobufField f;
  std::uint64_t seen = 0;
  while (reader.next(f)) {
    if (f.number <= 6) once(seen, f, source);
    if (f.number == 2) {
      reader.expect(f, Wire::kBytes);
      check_charsmap(f.bytes, source);
    }
    if (f.number == 3) model.add_dummy_prefix = read_bool(reader, f);
    if (f.number == 4) model.remove_extra_whitespaces = read_bool(reader, f);
    if (f.number == 5) model.escape_whitespaces = read_bool(reader, f);
  }
  if (!model.escape_whitespaces) bad(source, "escape_whitespaces off is not supported");
}

void check_denormalizer_spec(std::string_view message, const std::string& source) {
  ProtobufReader reader(message, source);
  ProtobufField f;
  while (reader.next(f)) {
    if (f.number == 2 && !f.bytes.empty()) bad(source, "a denormaliser is not supported");
  }
}

// Also counts how many user-defined pieces are prefixes of one another.
void check_unique(const std::vector<Piece>& pieces, const std::string& source) {
  std::vector<std::string_view> texts, chain;
  texts.reserve(pieces.size());
  for (const Piece& p : pieces) texts.push_back(p.text);
  std::sort(texts.begin(), texts.end());
  if (const auto it = std::adjacent_find(texts.begin(), texts.end()); it != texts.end()) {
    bad(source, fmt::format("piece {} occurs twice", quote_text(*it)));
  }
  texts.clear();
  for (const Piece& p : pieces) {
    if (p.type == PieceType::kUserDefined) texts.push_back(p.text);
  }
  std::sort(texts.begin(), texts.end());
  for (const std::string_view text : texts) {
    while (!chain.empty() && !text.starts_with(chain.back())) chain.pop_back();
    chain.push_back(text);
    if (chain.size() > kMaxNestedPrefixes) {
      bad(source, fmt::format("over {} user-defined pieces begin alike", kMaxNestedPrefixes));
    }
  }
}

std::int32_t find_control(const std::vector<Piece>& pieces, const std::string& text) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].type == PieceType::kControl && pieces[i].text == text) {
      return static_cast<std::int32_t>(i);
    }
  }
  return -1;
}

void check_ids(SentencePieceModel& model, const Ids& ids, const std::string& source) {
  const auto n = static_cast<std::int64_t>(model.pieces.size());
  for (const std::int64_t id : {ids.unk, ids.bos, ids.eos, ids.pad}) {
    if (id < -1 || id >= n) bad(source, fmt::format("special id {} of {} pieces", id, n));
  }
  std::size_t bytes = 0, unknown = 0;
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    if (model.pieces[i].type == PieceType::kByte) ++bytes;
    if (model.pieces[i].type != PieceType::kUnknown) continue;
    ++unknown;
    model.unk = static_cast<std::int32_t>(i);
  }
  if (unknown != 1) bad(source, fmt::format("{} unknown pieces, expected one", unknown));
  // Names are unique, so 256 byte pieces are all of them.
  if (bytes != (model.byte_fallback ? 256U : 0U)) {
    bad(source, fmt::format("{} byte pieces, expected {}", bytes, model.byte_fallback ? 256 : 0));
  }
  model.bos = find_control(model.pieces, model.bos_piece);
  model.eos = find_control(model.pieces, model.eos_piece);
}

}  // namespace

SentencePieceModel check_sentencepiece_model(std::string_view bytes, std::int64_t vocab,
                                             const std::string& source) {
  if (const std::string mistake = download_mistake(bytes); !mistake.empty()) {
    bad(source, "this is " + mistake);
  }
  if (static_cast<std::int64_t>(bytes.size()) > kMaxTokenizerBytes) {
    bad(source, fmt::format("{} bytes, the limit is {}", bytes.size(), kMaxTokenizerBytes));
  }
  SentencePieceModel model;
  Ids ids;
  ProtobufReader reader(bytes, source);
  ProtobufField f;
  std::uint64_t seen = 0;
  while (reader.next(f)) {
    if (f.number >= 1 && f.number <= 5) reader.expect(f, Wire::kBytes);
    if (f.number == 1) {
      if (model.pieces.size() >= kMaxPieces || std::cmp_greater_equal(model.pieces.size(), vocab)) {
        bad(source, fmt::format("more than {} pieces", std::min<std::int64_t>(vocab, kMaxPieces)));
      }
      model.pieces.push_back(read_piece(f.bytes, model.pieces.size(), source));
      continue;
    }
    if (f.number == 2 || f.number == 3 || f.number == 5) once(seen, f, source);
    if (f.number == 2) read_trainer_spec(f.bytes, model, ids, source);
    if (f.number == 3) read_normalizer_spec(f.bytes, model, source);
    if (f.number == 5) check_denormalizer_spec(f.bytes, source);
  }
  if (model.pieces.empty()) bad(source, "no pieces: not a SentencePiece model");
  check_unique(model.pieces, source);
  check_ids(model, ids, source);
  return model;
}

}  // namespace triforce
