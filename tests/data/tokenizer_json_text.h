// Small files tokenizer.json for tests.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/json_writer.h"
#include "triforce/format.h"

namespace triforce {

// How ByteLevel writes a byte: bytes that can be printed as Latin-1 are themselves, the others
// follow from U+0100 on.
inline std::string byte_level_character(unsigned char byte) {
  const auto printed = [](unsigned b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  unsigned code = byte;
  if (!printed(byte)) {
    code = 256;
    for (unsigned b = 0; b < byte; ++b) code += printed(b) ? 0 : 1;
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6U), static_cast<char>(0x80 | (code & 0x3FU))};
}
inline std::string byte_level(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += byte_level_character(static_cast<unsigned char>(byte));
  return out;
}

// The parts of a file as JSON text; tests replace some.
struct TokenizerText {
  std::string added = "[]", normalizer = "null", pre_tokenizer = "null", post_processor = "null",
              decoder = R"({"type": "Fuse"})";
  std::map<std::string, int> vocab;
  std::vector<std::pair<std::string, std::string>> merges;
  std::string model = R"("type": "BPE")";  // its members besides

  std::string text() const {
    JsonWriter out(JsonStyle::kCompact);
    out.begin_object();
    for (const auto& [token, id] : vocab) {
      out.key(token);
      out.value(id);
    }
    out.end();
    const std::string tokens = out.take();
    JsonWriter list(JsonStyle::kCompact);
    list.begin_array(true);
    for (const auto& [left, right] : merges) {
      list.begin_array(true);
      list.value(left);
      list.value(right);
      list.end();
    }
    list.end();
    return fmt::format(
        R"({{"version": "1.0", "truncation": null, "padding": null, "added_tokens": {},
"normalizer": {}, "pre_tokenizer": {}, "post_processor": {}, "decoder": {},
"model": {{{}, "vocab": {}, "merges": {}}}}})",
        added, normalizer, pre_tokenizer, post_processor, decoder, model, tokens, list.take());
  }
};

// All bytes, "ab" and "abc" merged.
inline TokenizerText byte_level_text() {
  TokenizerText file;
  for (int byte = 0; byte < 256; ++byte) {
    file.vocab[byte_level_character(static_cast<unsigned char>(byte))] = byte;
  }
  file.vocab["ab"] = 256;
  file.vocab["abc"] = 257;
  file.merges = {{"a", "b"}, {"ab", "c"}};
  file.pre_tokenizer =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
  file.decoder =
      R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})";
  return file;
}

// Characters, and bytes of those that have no token, as Llama's files have them.
inline TokenizerText byte_fallback_text() {
  TokenizerText file;
  for (int byte = 0; byte < 256; ++byte) file.vocab[fmt::format("<0x{:02X}>", byte)] = byte;
  int id = 256;
  for (const char* token : {"\xE2\x96\x81", "a", "b",
                            "\xE2\x96\x81"
                            "a",
                            "\xE2\x96\x81"
                            "ab"}) {
    file.vocab[token] = id++;
  }
  file.merges = {{"\xE2\x96\x81", "a"},
                 {"\xE2\x96\x81"
                  "a",
                  "b"}};
  file.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})";
  file.decoder = R"({"type": "Sequence", "decoders": [
{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
  file.model = R"("type": "BPE", "unk_token": null, "byte_fallback": true, "fuse_unk": true)";
  return file;
}

}  // namespace triforce
