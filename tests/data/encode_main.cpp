// What a tokenizer makes of texts, for tests: reads a JSON text a line, writes its ids and what
// they decode to as a JSON object a line.
//   encode_texts TOKENIZER VOCAB < texts.jsonl
#include <iostream>
#include <string>

#include "core/json_writer.h"
#include "core/strict_json.h"
#include "data/decoded_text.h"
#include "triforce/format.h"
#include "triforce/tokenizer.h"

namespace triforce {
namespace {

int encode_lines(const char* file, const char* vocab) {
  const Tokenizer tokenizer = Tokenizer::open(file, std::stoll(vocab));
  std::string line;
  while (std::getline(std::cin, line)) {
    const JsonValue text = parse_json(line, "stdin", {.max_bytes = std::int64_t{1} << 30});
    const std::vector<Token> ids = tokenizer.encode(text.as_string());
    JsonWriter out(JsonStyle::kCompact);
    out.begin_object();
    out.key("ids");
    out.begin_array(true);
    for (const Token id : ids) out.value(id);
    out.end();
    out.key("text");
    out.value(decoded_text(tokenizer, ids));
    out.end();
    std::cout << out.take() << '\n';
  }
  return 0;
}

}  // namespace
}  // namespace triforce

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    return triforce::encode_lines(argv[1], argv[2]);
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 3;
  }
}
