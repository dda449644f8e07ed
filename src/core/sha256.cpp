#include "core/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>

#include "triforce/error.h"
#include "triforce/format.h"

namespace triforce {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() {
  // OpenSSL 3.0 dereferences its default context even where it could not make one.
  if (OSSL_LIB_CTX_get0_global_default() != nullptr) context_.reset(EVP_MD_CTX_new());
  if (context_ == nullptr || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) {
    throw_resources("OutOfMemory", "cannot start a SHA-256 digest");
  }
}

void Sha256::update(std::span<const std::byte> bytes) {
  TF_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  TF_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &length) == 1 && length == 32);
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + length, ""));
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 digest;
  digest.update(bytes);
  return digest.hex();
}

std::string sha256_hex(std::string_view bytes) {
  return sha256_hex(std::as_bytes(std::span(bytes)));
}

}  // namespace triforce
