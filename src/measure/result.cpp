#include "measure/result.h"

#include "core/sha256.h"

namespace triforce {

std::string tokens_sha256(std::span<const Token> tokens) {
  std::vector<std::byte> bytes;
  bytes.reserve(tokens.size() * 4);
  for (const Token t : tokens) {
    const auto word = static_cast<std::uint32_t>(t);
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<std::byte>((word >> shift) & 0xFF));
    }
  }
  return sha256_hex(std::span<const std::byte>(bytes));
}

std::string make_run_id(const ResultContext& context, const std::string& salt) {
  std::string stamp;
  for (const char ch : context.start) {
    if (ch != '-' && ch != ':') stamp += ch;
  }
  Sha256 hash;
  for (const std::string& arg : context.argv) hash.update(arg + '\n');
  hash.update(context.start + '\n' + salt);
  return stamp + '-' + hash.hex().substr(0, 8);
}

}  // namespace triforce
