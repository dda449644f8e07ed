#include "data/protobuf_reader.h"

namespace triforce {

std::uint64_t ProtobufReader::varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (rest_.empty()) {
      refuse_tokenizer(*source_, "a protobuf number is cut off");
    }
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    if (shift == 63 && byte > 1) break;  // more than 64 bits
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  refuse_tokenizer(*source_, "a protobuf number has more than 64 bits");
}

std::uint64_t ProtobufReader::fixed(std::size_t bytes) {
  if (rest_.size() < bytes) {
    refuse_tokenizer(*source_, "a protobuf number is cut off");
  }
  std::uint64_t value = 0;
  for (std::size_t i = bytes; i-- > 0;) {
    value = (value << 8) | static_cast<unsigned char>(rest_[i]);
  }
  rest_.remove_prefix(bytes);
  return value;
}

bool ProtobufReader::next(ProtobufField& field) {
  if (rest_.empty()) return false;
  const std::uint64_t key = varint();
  field = {};
  if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) {
    refuse_tokenizer(*source_, "protobuf field number {} is out of range", key >> 3);
  }
  field.number = static_cast<std::uint32_t>(key >> 3);
  switch (key & 7U) {
    case 0:
      field.wire = Wire::kVarint;
      field.value = varint();
      return true;
    case 1:
      field.wire = Wire::kFixed64;
      field.value = fixed(8);
      return true;
    case 2: {
      field.wire = Wire::kBytes;
      const std::uint64_t length = varint();
      if (length > rest_.size()) {
        refuse_tokenizer(*source_, "protobuf field {} has {} bytes, {} are left", field.number,
                         length, rest_.size());
      }
      field.bytes = rest_.substr(0, static_cast<std::size_t>(length));
      rest_.remove_prefix(static_cast<std::size_t>(length));
      return true;
    }
    case 5:
      field.wire = Wire::kFixed32;
      field.value = fixed(4);
      return true;
    default:
      refuse_tokenizer(*source_, "protobuf field {} has the unsupported wire type {}", field.number,
                       key & 7U);
  }
}

void ProtobufReader::expect(const ProtobufField& field, Wire wire) const {
  if (field.wire == wire) return;
  refuse_tokenizer(*source_, "protobuf field {} has wire type {}, expected {}", field.number,
                   static_cast<int>(field.wire), static_cast<int>(wire));
}

}  // namespace triforce
