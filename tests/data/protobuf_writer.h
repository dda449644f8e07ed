// Just enough protobuf to build SentencePiece models, good and bad, in tests.
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace triforce::protobuf {

inline std::string varint(std::uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out.push_back(static_cast<char>((v & 0x7FU) | 0x80U));
  out.push_back(static_cast<char>(v));
  return out;
}
inline std::string number(std::uint32_t field, std::uint64_t value) {
  return varint(std::uint64_t{field} << 3).append(varint(value));
}
inline std::string bytes(std::uint32_t field, std::string_view value) {
  return varint((std::uint64_t{field} << 3) | 2).append(varint(value.size())).append(value);
}
inline std::string fixed32(std::uint32_t field, float value) {
  std::string out = varint((std::uint64_t{field} << 3) | 5);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  for (unsigned shift = 0; shift < 32; shift += 8) {
    out.push_back(static_cast<char>((bits >> shift) & 0xFFU));
  }
  return out;
}
// One piece of a model; type as in sentencepiece_model.proto (1 normal, 2 unknown, 3 control, ...).
inline std::string piece(std::string_view text, float score, std::uint64_t type) {
  return bytes(1, bytes(1, text).append(fixed32(2, score)).append(number(3, type)));
}
// <unk>, <s>, </s>, then `more`.
inline std::string model(std::string_view more, std::string_view trainer = {}) {
  return piece("<unk>", 0, 2)
      .append(piece("<s>", 0, 3))
      .append(piece("</s>", 0, 3))
      .append(more)
      .append(bytes(2, number(3, 2).append(trainer)));
}

}  // namespace triforce::protobuf
