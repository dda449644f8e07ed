// Prompts of exactly the requested length, from a generator, a file or a published data set.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/result_context.h"
#include "triforce/tensor.h"

namespace triforce {

struct Prompt {
  // BOS first if there is one. Exactly as many as were asked for; of conversations at most.
  std::vector<Token> tokens;
  std::string source;  // "synthetic #0", "book.txt", "books.jsonl:3", "book.txt, from token 512"
  std::vector<Token> answer = {};          // of needles, the pass key; else empty
  std::vector<std::string> expected = {};  // of RULER's tasks, what an answer holds; else empty
};

struct Dataset {
  std::vector<Prompt> prompts;
  // kind: "synthetic", "needle", a task of ruler.h, "txt", "jsonl", "ids", or the published name;
  // sha256: of the file, or of the generated text or tokens that were used.
  DataInfo info;
};

struct DatasetRequest {
  std::string name;                 // as RunConfig::dataset
  std::int64_t prefill = 0;         // tokens of each prompt, BOS included if there is one
  std::int64_t prompts = 1;         // at most so many
  std::uint64_t seed = 0;           // of the synthetic documents
  Token bos = 1;                    // -1: none, prompts begin with the text
  std::int64_t vocab = 0;           // ids of an .ids file must lie below it
  std::filesystem::path downloads;  // where scripts/download_data.sh puts <name>.jsonl
  std::int64_t max_bytes = std::numeric_limits<std::int64_t>::max();  // of all prompts' tokens
  // Asked before every document and after every encoding; what it throws ends the load. May be
  // empty.
  std::function<void()> check_stop = nullptr;
  std::string text_field = "text";  // as RunConfig::text_field
  double needle_depth = 0.5;        // of a needle, in [0, 1]: 0 at the beginning of the prompt
  std::int64_t generated = 0;       // tokens that will be generated after each prompt
  std::int64_t turn = 0;            // of conversations: after which prompts end; 0: no turns
  std::int64_t stride = 0;          // of a file: tokens from one prompt of a document to the next;
                                    // 0: one prompt of each
};

// Text to ids without BOS. Empty: this target has no tokenizer; .ids files can be read, and of
// synthetic documents the bytes are taken as ids.
using Encode = std::function<std::vector<Token>(std::string_view text)>;

// Files, by their ending:
//   .txt    one document, UTF-8.
//   .jsonl  one document a line: an object whose text field is cut to the prompt's length. Fields
//           "prefix" and "suffix", if any, stand whole before and after it, so that the prompt is
//           BOS + prefix + beginning of text + suffix, `prefill` tokens in all. Prefix and text are
//           encoded as one string; the suffix as after a line end, without the space that
//           SentencePiece puts before a text. Other fields are ignored.
//           With a turn it is a conversation: the text field, else "turns" or "messages", is an
//           array of texts, or of objects with a text or null as "content". The prompt is BOS and
//           the texts up to that turn, each with a line end behind it.
//   .ids    one document a line: decimal token ids with spaces or tabs between them, BOS or not.
// A document that is too short is skipped and counted, as are an empty line and a conversation with
// fewer turns or too many tokens.
//
// Throws Error(kBadInput): FileNotFound, NotRegularFile, UnknownDataset, InvalidDataset (naming
// file and line; also for a prefix and suffix that leave no room for text), NoTokenizer, NoPrompts
// (every document is too short); Error(kResources, "MemoryLimit") for prompts of more than
// max_bytes.
Dataset load_dataset(const DatasetRequest& request, const Encode& encode);
// Of prompts that are not cut, as info.mean_tokens has it; nullopt: there are none.
std::optional<double> mean_tokens(std::span<const Prompt> prompts);
// Refuses what load_dataset() refuses by the name alone. Throws Error(kBadInput): UnknownDataset or
// NoTokenizer. Throws Error(kUsage) for another text field than "text" where there are no fields,
// or for one that has a meaning of its own.
void check_dataset(std::string_view name, bool has_tokenizer, std::string_view text_field);
// The file of a data set, opened; empty for synthetic. Throws Error(kBadInput) if it is not there
// or cannot be read.
std::filesystem::path find_dataset(const std::string& name, const std::filesystem::path& downloads);

// Whether prompts are made of text: all but .ids files. Throws Error(kBadInput,
// "UnknownDataset").
bool is_of_text(std::string_view name);
// True for synthetic, needle and the tasks of ruler.h.
bool is_generated_dataset(std::string_view name);
// True for gs, 128k, one-shot, lwm and demo.
bool is_published_dataset(std::string_view name);

}  // namespace triforce
