// The protobuf wire format, read without trust: every varint and length is bounded, groups are
// refused. (protobuf.dev, "Encoding")
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "triforce/error.h"

namespace triforce {

// Throws Error(kBadInput, "InvalidTokenizer") with `source` before the message.
template <class... Args>
[[noreturn]] void refuse_tokenizer(const std::string& source, fmt::format_string<Args...> f,
                                   Args&&... args) {
  throw_input("InvalidTokenizer", "{}: {}", source, fmt::format(f, std::forward<Args>(args)...));
}

enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct ProtobufField {
  std::uint32_t number = 0;
  Wire wire = Wire::kVarint;
  std::uint64_t value = 0;  // varint and fixed
  std::string_view bytes;   // kBytes
};

// Reads the fields of one message in order. Throws Error(kBadInput, "InvalidTokenizer").
class ProtobufReader {
 public:
  // `source` names the file in messages and must outlive the reader.
  ProtobufReader(std::string_view message, const std::string& source)
      : rest_(message), source_(&source) {}
  bool next(ProtobufField& field);  // false at the end
  // Throws unless the field has this wire type.
  void expect(const ProtobufField& field, Wire wire) const;

 private:
  std::uint64_t varint();
  std::uint64_t fixed(std::size_t bytes);
  std::string_view rest_;
  const std::string* source_;
};

}  // namespace triforce
