// Writes synthetic documents to standard output, one after another, each followed by a byte 0 when
// there are several: the training text of scripts/train_pair.py.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>

#include "data/synthetic.h"

namespace {

constexpr const char* kUsage =
    "usage: triforce-synthesize [--seed N] [--first N] [--count N] [--bytes N]\n"
    "  --seed   seed of the documents (default 42)\n"
    "  --first  index of the first document (default 0)\n"
    "  --count  number of documents (default 1); from two on each ends with a byte 0\n"
    "  --bytes  least length of a document in bytes (default 32768)\n";

bool parse(const char* text, std::uint64_t& value) {
  const char* end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, value);
  return result.ec == std::errc() && result.ptr == end && end != text;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 42, first = 0, count = 1, bytes = 32768;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    std::uint64_t* value = option == "--seed"    ? &seed
                           : option == "--first" ? &first
                           : option == "--count" ? &count
                           : option == "--bytes" ? &bytes
                                                 : nullptr;
    if (value == nullptr || i + 1 >= argc || !parse(argv[i + 1], *value) || bytes > (1u << 30)) {
      std::fprintf(stderr, "triforce-synthesize: bad option '%s'\n%s", argv[i], kUsage);
      return 2;
    }
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string text = triforce::synthetic_document(seed, first + i, bytes);
    bool ok = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (count > 1) ok = ok && std::fputc(0, stdout) != EOF;
    if (!ok) {
      std::perror("triforce-synthesize: standard output");
      return 4;
    }
  }
  if (std::fflush(stdout) != 0) {
    std::perror("triforce-synthesize: standard output");
    return 4;
  }
  return 0;
}
