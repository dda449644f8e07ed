#include "data/datasets.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/json_writer.h"
#include "core/sha256.h"
#include "core/strict_json.h"
#include "data/decoded_text.h"
#include "data/generated_prompts.h"
#include "data/ruler.h"
#include "data/synthetic.h"
#include "triforce/error.h"
#include "triforce/tokenizer.h"

namespace triforce {
namespace {

// One token a byte, so that lengths are exact.
std::vector<Token> bytes_as_tokens(std::string_view text) {
  std::vector<Token> ids;
  for (const char c : text) ids.push_back(3 + static_cast<unsigned char>(c));
  return ids;
}

class Datasets : public ::testing::Test {
 protected:
  std::string write(const std::string& suffix, const std::string& contents) {
    files_.push_back(::testing::TempDir() + "triforce_datasets_test" + suffix);
    std::ofstream(files_.back(), std::ios::binary) << contents;
    return files_.back();
  }
  void TearDown() override {
    for (const std::string& file : files_) std::remove(file.c_str());
  }
  Dataset load(const std::string& name, std::int64_t prefill, std::int64_t prompts = 1) {
    return load_dataset({name, prefill, prompts, 42, 1, 300, ::testing::TempDir() + "no-downloads"},
                        bytes_as_tokens);
  }
  // The error class and message of a load that must fail with exit code 3.
  std::pair<std::string, std::string> fail(const std::string& name, std::int64_t prefill,
                                           std::int64_t prompts = 1) {
    try {
      load(name, prefill, prompts);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kBadInput);
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      return {e.kind(), e.what()};
    }
    return {"none", ""};
  }
  std::vector<std::string> files_;
};

// A model without BOS: prompts are as long, of one token more of the text.
TEST_F(Datasets, PromptsOfAModelWithoutBosBeginWithTheText) {
  const auto first_prompt = [](const std::string& name, std::int64_t prefill, Token bos) {
    return load_dataset({name, prefill, 1, 42, bos, 300, ""}, bytes_as_tokens).prompts.front();
  };
  const std::string ids = write(".ids", "1 10 11 12 13 14\n");
  EXPECT_EQ(first_prompt(ids, 5, 1).tokens, (std::vector<Token>{1, 10, 11, 12, 13}));
  EXPECT_EQ(first_prompt(ids, 5, -1).tokens, (std::vector<Token>{1, 10, 11, 12, 13}));
  EXPECT_EQ(first_prompt(ids, 6, -1).tokens, (std::vector<Token>{1, 10, 11, 12, 13, 14}));
  EXPECT_THROW(first_prompt(ids, 7, -1), Error);
  const std::string text = write(".txt", "abcdef");
  EXPECT_EQ(first_prompt(text, 6, -1).tokens, bytes_as_tokens("abcdef"));
  const std::string framed = write(".jsonl", R"({"text": "abcdef", "prefix": "<", "suffix": ">"})"
                                             "\n");
  EXPECT_EQ(first_prompt(framed, 6, -1).tokens, bytes_as_tokens("<abcd>"));
  EXPECT_EQ(first_prompt(framed, 3, -1).tokens, bytes_as_tokens("<a>"));
  EXPECT_THROW(first_prompt(framed, 2, -1), Error);  // no room for text
  for (const char* generated : {"synthetic", "needle"}) {
    const Prompt with = first_prompt(generated, 500, 1), without = first_prompt(generated, 499, -1);
    EXPECT_EQ(with.tokens.front(), 1);
    EXPECT_EQ(std::vector<Token>(with.tokens.begin() + 1, with.tokens.end()), without.tokens);
    EXPECT_EQ(with.answer, without.answer);
  }
}

TEST_F(Datasets, SyntheticPromptsAreExactAndRepeatable) {
  const Dataset a = load("synthetic", 20'000, 3);
  ASSERT_EQ(a.prompts.size(), 3U);
  for (const Prompt& p : a.prompts) {
    EXPECT_EQ(p.tokens.size(), 20'000U);
    EXPECT_EQ(p.tokens.front(), 1);
  }
  EXPECT_NE(a.prompts[0].tokens, a.prompts[1].tokens);
  EXPECT_EQ(a.prompts[1].source, "synthetic #1");
  EXPECT_EQ(a.info.kind, "synthetic");
  EXPECT_EQ(a.info.n_prompts, 3);
  EXPECT_EQ(a.info.n_skipped, 0);
  EXPECT_EQ(a.info.sha256->size(), 64U);
  const Dataset b = load("synthetic", 20'000, 3);
  EXPECT_EQ(a.prompts[2].tokens, b.prompts[2].tokens);
  EXPECT_EQ(a.info.sha256, b.info.sha256);
}

TEST_F(Datasets, SyntheticPromptIsTheDocumentsBeginning) {
  const Dataset a = load("synthetic", 5'000);
  const std::string text = synthetic_document(42, 0, 5'000);
  std::vector<Token> expected = bytes_as_tokens(std::string_view(text).substr(0, 4'999));
  expected.insert(expected.begin(), 1);
  EXPECT_EQ(a.prompts[0].tokens, expected);
}

// A document with a key in it, at the depth asked for, and a question after which the key comes.
TEST_F(Datasets, NeedlesStandWhereTheyAreAskedFor) {
  const std::string question = "\nWhat is the pass key? The pass key is:";
  std::set<std::string> hashes, keys;
  for (const double depth : {0.0, 0.3, 0.5, 1.0}) {
    DatasetRequest request{"needle", 5'000, 2, 42, 1, 300, {}};
    request.needle_depth = depth;
    const Dataset d = load_dataset(request, bytes_as_tokens);
    ASSERT_EQ(d.prompts.size(), 2U);
    EXPECT_EQ(d.info.kind, "needle");
    hashes.insert(*d.info.sha256);
    EXPECT_EQ(load_dataset(request, bytes_as_tokens).info.sha256, d.info.sha256);
    for (std::uint64_t i = 0; i < 2; ++i) {
      const std::string key = pass_key(42, i), told = "\nThe pass key is: " + key + "\n";
      keys.insert(key);
      EXPECT_EQ(key.size(), 342U);
      const std::size_t rest = 4'999 - told.size() - question.size();
      const auto before = static_cast<std::size_t>(std::llround(depth * static_cast<double>(rest)));
      std::string text = synthetic_document(42, i, 5'000).substr(0, rest);
      text.insert(before, told);
      std::vector<Token> expected = bytes_as_tokens(text + question);
      expected.insert(expected.begin(), 1);
      EXPECT_EQ(d.prompts[i].tokens, expected) << depth;
      EXPECT_EQ(d.prompts[i].source, fmt::format("needle #{}", i));
      EXPECT_EQ(d.prompts[i].answer, bytes_as_tokens(' ' + key));
    }
  }
  EXPECT_EQ(hashes.size(), 4U);  // the place is a part of the data
  EXPECT_EQ(keys.size(), 2U);
  EXPECT_NE(pass_key(43, 0), pass_key(42, 0));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string text_of(const Prompt& prompt) {
  std::string text;
  for (std::size_t i = 1; i < prompt.tokens.size(); ++i) {
    text += static_cast<char>(prompt.tokens[i] - 3);
  }
  return text;
}

std::map<std::string, int> counts_behind(const std::string& text, const std::string& intro) {
  std::map<std::string, int> counts;
  const std::string list = text.substr(text.rfind(intro) + intro.size() + 1);
  for (const std::string& line : lines_of(list.substr(0, list.find("Question:")))) {
    // What stands before the words to make the prompt as long as was asked for is the end of a
    // sentence.
    if (line.find_first_of(" .,!?\"") == std::string::npos && line.size() == 8) ++counts[line];
  }
  return counts;
}

class RulerPrompts : public Datasets {
 protected:
  Dataset load(RulerTask task, std::int64_t prefill, std::int64_t prompts = 3) {
    Dataset d = Datasets::load(to_string(task), prefill, prompts);
    EXPECT_EQ(d.info.kind, to_string(task));
    EXPECT_EQ(std::ssize(d.prompts), prompts);
    for (const Prompt& p : d.prompts) {
      EXPECT_EQ(std::ssize(p.tokens), prefill);
      EXPECT_TRUE(p.answer.empty());
    }
    return d;
  }
};

// Each number that is expected is told once, of a thing that is asked for; no other one is.
TEST_F(RulerPrompts, NeedlesAreToldAndAskedFor) {
  struct Kind {
    RulerTask task;
    std::size_t told, expected;
  };
  for (const Kind kind : {Kind{RulerTask::kSingle, 1, 1}, Kind{RulerTask::kMultiKey, 4, 1},
                          Kind{RulerTask::kMultiValue, 4, 4}, Kind{RulerTask::kMultiQuery, 4, 4}}) {
    std::set<std::size_t> places;
    for (const Prompt& p : load(kind.task, 6'000).prompts) {
      const std::string text = text_of(p), question = text.substr(text.rfind("Question:"));
      std::set<std::string> asked, things;
      std::size_t told = 0;
      for (const std::string& line : lines_of(text)) {
        const std::size_t at = line.find("ecret number"), the = line.find(" the ", at),
                          is = line.rfind(" is ");
        if (line.starts_with("Question") || line.starts_with("Answer") || is == line.npos ||
            at == line.npos || line.starts_with("Some")) {
          continue;
        }
        ++told;
        const std::string thing = line.substr(the, is - the), number = line.substr(is + 4, 7);
        EXPECT_EQ(line.substr(is + 11), ".");
        EXPECT_EQ(number.find_first_not_of("0123456789"), std::string::npos);
        things.insert(thing);
        if (question.find(thing) != question.npos) asked.insert(number);
        places.insert(text.find(line));
      }
      EXPECT_EQ(told, kind.told) << text;
      EXPECT_EQ(things.size(), kind.task == RulerTask::kMultiValue ? 1U : kind.told);
      EXPECT_EQ(asked, std::set<std::string>(p.expected.begin(), p.expected.end()));
      EXPECT_EQ(p.expected.size(), kind.expected);
      EXPECT_TRUE(text.ends_with(kind.expected > 1 ? " are" : " is")) << question;
    }
    EXPECT_EQ(places.size(), 3 * kind.told);  // not all at the same depth
  }
}

TEST_F(RulerPrompts, VariablesAreAChain) {
  for (const Prompt& p : load(RulerTask::kVariables, 4'000).prompts) {
    const std::string text = text_of(p);
    std::map<std::string, std::string> values;
    for (const std::string& line : lines_of(text)) {
      if (!line.starts_with("VAR ")) continue;
      const std::string name = line.substr(4, 5), value = line.substr(12);
      EXPECT_FALSE(values.contains(name));
      values[name] = value.starts_with("VAR ") ? values.at(value.substr(4)) : value;
    }
    EXPECT_EQ(values.size(), 10U);  // the example has as many
    const std::string question = text.substr(text.rfind("Question:"));
    std::set<std::string> asked;
    for (const auto& [name, value] : values) {
      if (question.find(value) != question.npos) asked.insert(name);
    }
    EXPECT_EQ(asked, std::set<std::string>(p.expected.begin(), p.expected.end()));
    EXPECT_EQ(asked.size(), 5U);
  }
}

TEST_F(RulerPrompts, ListsHaveWordsAsOftenAsPublished) {
  for (const Prompt& p : load(RulerTask::kCommonWords, 8'000).prompts) {
    const std::string text = text_of(p);
    const auto counts = counts_behind(text, "the others.");
    EXPECT_EQ(p.expected.size(), 10U);
    for (const std::string& word : p.expected) EXPECT_EQ(counts.at(word), 30);
    std::size_t others = 0;
    for (const auto& [word, count] : counts) others += count == 3 ? 1 : 0;
    EXPECT_GE(others + 10 + 3, counts.size());  // eight-letter ends of a sentence
    EXPECT_GT(others, 150U);
  }
  for (const Prompt& p : load(RulerTask::kFrequentWords, 8'000).prompts) {
    const auto counts = counts_behind(text_of(p), "the others.");
    ASSERT_EQ(p.expected.size(), 3U);
    std::vector<int> falling;
    for (const auto& [word, count] : counts) falling.push_back(count);
    std::ranges::sort(falling, std::greater<>());
    for (int k = 0; k < 3; ++k) {
      EXPECT_EQ(counts.at(p.expected[static_cast<std::size_t>(k)]),
                falling[static_cast<std::size_t>(k)]);
    }
    EXPECT_NEAR(falling[0] / 4.0, falling[1], 1);
    EXPECT_NEAR(falling[0] / 9.0, falling[2], 1);
    EXPECT_GT(falling[2], falling[3]);
  }
}

TEST_F(RulerPrompts, AreRepeatableAndDiffer) {
  for (std::size_t t = 0; t < names_of(RulerTask{}).size(); ++t) {
    const auto task = static_cast<RulerTask>(t);
    EXPECT_EQ(find_ruler_task(to_string(task)), task);
    const Dataset a = load(task, 5'000), b = load(task, 5'000, 2);
    EXPECT_EQ(a.prompts[1].tokens, b.prompts[1].tokens);
    EXPECT_EQ(a.prompts[1].expected, b.prompts[1].expected);
    EXPECT_NE(a.prompts[0].expected, a.prompts[1].expected);
    EXPECT_NE(a.info.sha256, b.info.sha256);
    EXPECT_EQ(load(task, 5'000).info.sha256, a.info.sha256);
    EXPECT_EQ(a.prompts[2].source, fmt::format("{} #2", to_string(task)));
  }
  EXPECT_FALSE(find_ruler_task("ruler-qa"));
}

TEST_F(RulerPrompts, NeedRoomAndATokenizer) {
  for (const char* name : names_of(RulerTask{})) {
    DatasetRequest request{name, 100, 1, 42, 1, 300, {}};
    const auto refused = [&](const Encode& encode) -> std::string {
      try {
        load_dataset(request, encode);
      } catch (const Error& e) {
        return e.what();
      }
      return "nothing";
    };
    const std::string message = refused(bytes_as_tokens);
    const std::string expected = "--prefill: expected at least the ";
    ASSERT_TRUE(message.starts_with(expected)) << message;
    EXPECT_TRUE(message.ends_with(fmt::format("tokens of {} #0 and its question, found 100", name)))
        << message;
    request.prefill = std::stoll(message.substr(expected.size()));
    EXPECT_EQ(refused(bytes_as_tokens), "nothing");  // it says how many are enough
    request.prefill -= 1;
    EXPECT_NE(refused(bytes_as_tokens), "nothing");
    request.prefill += 1;
    request.generated = 4;
    EXPECT_TRUE(refused(bytes_as_tokens).starts_with("--gen-len: expected at least the "));
    EXPECT_NE(refused({}).find("tokenizer"), std::string::npos);
    EXPECT_THROW(check_dataset(name, false, "text"), Error);
  }
}

// As many tokens as the key and the space before it have; more would not be copied.
TEST_F(Datasets, NeedlesAreNotAskedForMoreThanTheKey) {
  const auto usage_error = [](std::int64_t prefill, std::int64_t generated) -> std::string {
    DatasetRequest request{"needle", prefill, 1, 42, 1, 300, {}};
    request.generated = generated;
    try {
      load_dataset(request, bytes_as_tokens);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage);
      return e.what();
    }
    return {};
  };
  EXPECT_EQ(usage_error(2'000, 343), "");
  EXPECT_EQ(usage_error(2'000, 344).find("--gen-len: expected at most the 343 tokens"), 0U);
  // BOS, 18 bytes before the key, the key, a line end, 39 bytes of the question.
  EXPECT_EQ(usage_error(1 + 18 + 342 + 1 + 39, 0), "");
  EXPECT_EQ(usage_error(18 + 342 + 1 + 39, 0).find("--prefill: expected at least the 401 "), 0U);
  // Bytes are ids without a tokenizer.
  const Dataset d = load_dataset({"needle", 2'000, 1, 42, 1, 300, {}}, nullptr);
  EXPECT_TRUE(d.info.bytes_as_ids);
  EXPECT_EQ(d.prompts[0].tokens,
            load_dataset({"needle", 2'000, 1, 42, 1, 300, {}}, bytes_as_tokens).prompts[0].tokens);
}

TEST_F(Datasets, TextFileIsOneDocument) {
  const std::string text = "first line\n\nsecond line\n";
  const std::string file = write(".txt", text);
  const Dataset d = load(file, 12, 5);
  ASSERT_EQ(d.prompts.size(), 1U);
  std::vector<Token> expected = bytes_as_tokens("first line\n");
  expected.insert(expected.begin(), 1);
  EXPECT_EQ(d.prompts[0].tokens, expected);
  EXPECT_EQ(d.info.kind, "txt");
  EXPECT_EQ(d.info.sha256, sha256_hex(text));
  // Every byte and BOS: exactly long enough; one more is too short.
  EXPECT_EQ(load(file, 25).prompts[0].tokens.size(), 25U);
  EXPECT_EQ(fail(file, 26).first, "NoPrompts");
  EXPECT_NE(fail(file, 26).second.find("26 tokens"), std::string::npos);
}

TEST_F(Datasets, TextIsClippedAtCharacters) {
  std::string text;
  for (int i = 0; i < 5'000; ++i) text += "\xC3\xA9";  // two bytes a character
  const Dataset d = load(write(".txt", text), 33);
  EXPECT_EQ(d.prompts[0].tokens.size(), 33U);
}

TEST_F(Datasets, JsonLines) {
  const std::string contents =
      "{\"text\": \"too short\"}\n\n{\"id\": 7, \"text\": \"long enough for it\"}\r\n"
      "{\"text\": \"also long enough!\"}";
  const std::string file = write(".jsonl", contents);
  const Dataset d = load(file, 15, 9);
  ASSERT_EQ(d.prompts.size(), 2U);
  EXPECT_EQ(d.info.n_skipped, 2);  // one too short, one empty line
  EXPECT_EQ(d.prompts[0].source, file + ":3");
  EXPECT_EQ(d.prompts[1].source, file + ":4");
  EXPECT_EQ(d.info.sha256, sha256_hex(contents));
  // Only as many as asked for, and the digest is still the whole file's.
  const Dataset first = load(file, 15, 1);
  EXPECT_EQ(first.prompts.size(), 1U);
  EXPECT_EQ(first.info.sha256, d.info.sha256);
}

TEST_F(Datasets, JsonLinesLongerThanABlock) {
  const std::string text(3 << 20, 'x');
  const Dataset d = load(write(".jsonl", "{\"text\": \"" + text + "\"}\n"), (3 << 20) + 1);
  EXPECT_EQ(d.prompts[0].tokens.size(), static_cast<std::size_t>((3 << 20) + 1));
}

TEST_F(Datasets, BadJsonLinesNameTheLine) {
  const std::string good = "{\"text\": \"0123456789\"}\n";
  const std::vector<std::string> bad = {"{\"text\": \"\"}\n",
                                        "{\"text\": \"a\", \"suffix\": 7}\n",
                                        "{\"text\": \"a\", \"prefix\": null}\n",
                                        "{\"prefix\": \"a\"}\n",
                                        "{\"text\": 7}\n",
                                        "{\"texts\": \"a\"}\n",
                                        "[\"text\"]\n",
                                        "{\"text\": \"a\"\n",
                                        "\xEF\xBB\xBF{\"text\": \"a\"}\n",
                                        "{\"text\": \"\xFF\"}\n",
                                        "{\"text\": \"a\"} extra\n",
                                        "{\"text\": \"a\", \"text\": \"b\"}\n",
                                        "not json\n"};
  for (const std::string& line : bad) {
    const std::string file = write(".jsonl", good + line);
    const auto [kind, message] = fail(file, 8, 2);
    EXPECT_TRUE(kind == "InvalidDataset" || kind == "DuplicateKey") << kind << " for " << line;
    EXPECT_NE(message.find(file + ":2"), std::string::npos) << message;
  }
  EXPECT_NE(fail(write(".jsonl", "{\"body\": \"a\", \"\\u001b[31m\": 1}\n"), 8)
                .second.find("found keys \"body\", \"\\x1b[31m\""),
            std::string::npos)
      << fail(files_.back(), 8).second;
  EXPECT_NE(fail(write(".jsonl", "{\"body\": \"a\"}\n"), 8)
                .second.find("the field \"text\" (--text-field)"),
            std::string::npos);
  // A byte order mark is refused on the first line too.
  EXPECT_EQ(fail(write(".jsonl", "\xEF\xBB\xBF" + good), 8).first, "InvalidDataset");
}

TEST_F(Datasets, TextFieldOfAnotherName) {
  const std::string file = write(
      ".jsonl", "{\"text\": \"not this one, which is long enough\", \"body\": \"0123456789\"}\n");
  DatasetRequest request{file, 8, 1, 42, 1, 300, {}};
  request.text_field = "body";
  std::vector<Token> expected = bytes_as_tokens("0123456");
  expected.insert(expected.begin(), 1);
  EXPECT_EQ(load_dataset(request, bytes_as_tokens).prompts[0].tokens, expected);
  EXPECT_NE(load(file, 8).prompts[0].tokens, expected);

  const auto refused = [](std::string_view name, std::string_view field) {
    try {
      check_dataset(name, true, field);
    } catch (const Error& e) {
      return e.code();
    }
    return ExitCode::kOk;
  };
  EXPECT_EQ(refused("a.jsonl", "body"), ExitCode::kOk);
  EXPECT_EQ(refused("gs", "body"), ExitCode::kOk);
  for (const char* name : {"synthetic", "a.txt", "a.ids"}) {
    EXPECT_EQ(refused(name, "body"), ExitCode::kUsage) << name;
    EXPECT_EQ(refused(name, "text"), ExitCode::kOk) << name;
  }
  EXPECT_EQ(refused("a.jsonl", "prefix"), ExitCode::kUsage);
}

TEST_F(Datasets, AStrideMakesSeveralPromptsOfADocument) {
  const auto prompts = [&](const std::string& file, std::int64_t stride, std::int64_t n) {
    DatasetRequest request{file, 8, n, 42, 1, 300, {}};
    request.stride = stride;
    std::vector<std::string> texts;
    for (const Prompt& p : load_dataset(request, bytes_as_tokens).prompts) {
      EXPECT_EQ(p.tokens.size(), 8U);
      EXPECT_EQ(p.tokens[0], 1);
      std::string text;
      for (std::size_t i = 1; i < p.tokens.size(); ++i) {
        text += static_cast<char>(p.tokens[i] - bytes_as_tokens(" ")[0] + ' ');
      }
      texts.push_back(text);
    }
    return texts;
  };
  using Texts = std::vector<std::string>;
  const std::string text = write(".txt", "abcdefghijklmnopqrst");
  EXPECT_EQ(prompts(text, 0, 9), (Texts{"abcdefg"}));
  EXPECT_EQ(prompts(text, 5, 9), (Texts{"abcdefg", "fghijkl", "klmnopq"}));  // 5 bytes are left
  EXPECT_EQ(prompts(text, 5, 2), (Texts{"abcdefg", "fghijkl"}));
  EXPECT_EQ(prompts(text, 100, 9), (Texts{"abcdefg"}));
  // More than the beginning that holds one prompt is encoded.
  const std::string book = write(".txt", std::string(1000, 'a') + "0123456789");
  EXPECT_EQ(prompts(book, 1003, 2), (Texts{"aaaaaaa", "3456789"}));
  // Each document in turn, with its prefix and suffix around every prompt.
  const std::string lines = write(".jsonl",
                                  "{\"prefix\": \"<\", \"text\": \"abcdefgh\", \"suffix\": \">\"}\n"
                                  "{\"text\": \"0123456789\"}\n");
  EXPECT_EQ(prompts(lines, 3, 9), (Texts{"<abcde>", "<defgh>", "0123456", "3456789"}));
  EXPECT_EQ(prompts(lines, 3, 3), (Texts{"<abcde>", "<defgh>", "0123456"}));
}

TEST_F(Datasets, ConversationsEndAfterATurn) {
  const std::string file =
      write(".jsonl",
            "{\"turns\": [\"ab\", \"cde\", \"f\"]}\n"
            "{\"messages\": [{\"role\": \"user\", \"content\": \"gh\"}, {\"content\": null}]}\n"
            "{\"turns\": [\"0123456789\", \"x\"]}\n");
  const auto load_turn = [&](std::int64_t turn, const std::string& field = "text") {
    DatasetRequest request{file, 12, 9, 42, 1, 300, {}};
    request.turn = turn;
    request.text_field = field;
    return load_dataset(request, bytes_as_tokens);
  };
  const auto texts = [&](std::int64_t turn) {
    std::vector<std::string> all;
    for (const Prompt& p : load_turn(turn).prompts) {
      EXPECT_EQ(p.tokens[0], 1);
      std::string& text = all.emplace_back();
      for (std::size_t i = 1; i < p.tokens.size(); ++i) text += static_cast<char>(p.tokens[i] - 3);
    }
    return all;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts(1), (Texts{"ab\n", "gh\n", "0123456789\n"}));
  EXPECT_EQ(texts(2), (Texts{"ab\ncde\n", "gh\n\n"}));  // the third has 14 tokens by now
  EXPECT_EQ(texts(3), (Texts{"ab\ncde\nf\n"}));
  const DataInfo info = load_turn(2).info;
  EXPECT_EQ(info.n_prompts, 2);
  EXPECT_EQ(info.n_skipped, 1);
  EXPECT_EQ(info.mean_tokens, (8 + 5) / 2.0);
  const auto refusal = [&](std::int64_t turn, const std::string& field = "text") {
    try {
      load_turn(turn, field);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_NE(refusal(4).find("expected a conversation of at least 4 turns (--turn) in at most 12"),
            std::string::npos);
  EXPECT_NE(
      refusal(1, "log").find("expected an object with a list as \"log\" (--turn), found keys"),
      std::string::npos);
  write(".jsonl", "{\"turns\": [\"ab\", {\"text\": \"c\"}]}\n");
  EXPECT_EQ(texts(1), (Texts{"ab\n"}));
  EXPECT_NE(refusal(2).find("as turn 2, found keys \"text\""), std::string::npos);
}

TEST_F(Datasets, TokenIds) {
  const std::string file = write(".ids", "5 6 7\t8  9\n\n1 10 11 12 13 14\n2\n");
  const Dataset d = load(file, 5, 9);
  ASSERT_EQ(d.prompts.size(), 2U);
  EXPECT_EQ(d.prompts[0].tokens, (std::vector<Token>{1, 5, 6, 7, 8}));
  EXPECT_EQ(d.prompts[1].tokens, (std::vector<Token>{1, 10, 11, 12, 13}));  // BOS was there
  EXPECT_EQ(d.info.n_skipped, 2);
  for (const char* bad : {"1 300\n", "1 -1\n", "1 2.0\n", "1 x\n", "99999999999999999999\n"}) {
    EXPECT_EQ(fail(write(".ids", bad), 2).first, "InvalidDataset") << bad;
  }
}

TEST_F(Datasets, TokenIdsNeedNoTokenizer) {
  const std::string ids = write(".ids", "5 6 7 8\n");
  EXPECT_EQ(load_dataset({ids, 4, 1, 0, 1, 300, {}}, nullptr).prompts.size(), 1U);
  const Dataset synthetic = load_dataset({"synthetic", 4000, 2, 0, 1, 97, {}}, nullptr);
  ASSERT_EQ(synthetic.prompts.size(), 2U);
  for (const Prompt& p : synthetic.prompts) {
    ASSERT_EQ(p.tokens.size(), 4000U);
    for (std::size_t i = 1; i < p.tokens.size(); ++i) {
      ASSERT_GE(p.tokens[i], 3);
      ASSERT_LT(p.tokens[i], 97);
    }
  }
  try {
    load_dataset({write(".txt", "some text"), 4, 1, 0, 1, 300, {}}, nullptr);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), "NoTokenizer");
  }
}

TEST_F(Datasets, NamesAndFilesThatAreNotThere) {
  for (const char* name : {"gs", "128k", "one-shot", "lwm", "demo"}) {
    const auto [kind, message] = fail(name, 8);
    EXPECT_EQ(kind, "FileNotFound");
    EXPECT_NE(message.find("scripts/download_data.sh " + std::string(name)), std::string::npos);
  }
  EXPECT_EQ(fail("/nonexistent/book.txt", 8).first, "FileNotFound");
  EXPECT_EQ(fail("gutenberg", 8).first, "UnknownDataset");
  EXPECT_EQ(fail(write(".txt", ""), 8).first, "InvalidDataset");
  EXPECT_EQ(fail(write(".txt", "abc\xFFxyz"), 4).first, "InvalidDataset");
  EXPECT_NE(fail(write(".txt", std::string(100, '\0')), 4).second.find("a NUL byte at offset 0"),
            std::string::npos);
}

TEST_F(Datasets, OnlyRegularFiles) {
  files_.push_back(::testing::TempDir() + "triforce_datasets_fifo.jsonl");
  ASSERT_EQ(::mkfifo(files_.back().c_str(), 0600), 0);
  EXPECT_EQ(fail(files_.back(), 8).first, "NotRegularFile");  // and does not wait for a writer
  files_.push_back(::testing::TempDir() + "triforce_datasets_device.txt");
  ASSERT_EQ(::symlink("/dev/zero", files_.back().c_str()), 0);
  EXPECT_EQ(fail(files_.back(), 8).first, "NotRegularFile");
  EXPECT_EQ(fail("/dev/stdin", 8).first, "UnknownDataset");
}

TEST_F(Datasets, TheTextIsCutToLeaveRoomForPrefixAndSuffix) {
  const std::string text = "0123456789";
  const auto load_one = [&](std::int64_t prefill) {
    return load(
        write(".jsonl", "{\"suffix\": \">>\", \"prefix\": \"<\", \"text\": \"" + text + "\"}\n"),
        prefill);
  };
  for (std::int64_t prefill = 5; prefill <= 14; ++prefill) {
    std::vector<Token> expected =
        bytes_as_tokens("<" + text.substr(0, static_cast<std::size_t>(prefill) - 4) + ">>");
    expected.insert(expected.begin(), 1);
    EXPECT_EQ(load_one(prefill).prompts[0].tokens, expected) << prefill;
  }
  EXPECT_EQ(fail(files_.back(), 15).first, "NoPrompts");
  const auto [kind, message] = fail(files_.back(), 4);
  EXPECT_EQ(kind, "InvalidDataset");
  EXPECT_NE(message.find(files_.back() + ":1: expected a --prefill above the 4 tokens"),
            std::string::npos)
      << message;
}

// The ids of a prompt with a suffix are those of its text as one string: nothing shows where the
// parts were joined.
TEST_F(Datasets, PrefixAndSuffixWithTheBuiltInTokenizer) {
  const Tokenizer tokenizer =
      Tokenizer::open(TF_SOURCE_DIR "/data/models/target/tokenizer.model", 4096);
  const Encode encode = [&](std::string_view text) { return tokenizer.encode(text); };
  const std::string prefix = "Please read the chronicle below.\n[start]\n";
  const std::string text = synthetic_document(7, 0, 20'000);
  const std::string suffix = "\n[end]\n\nNow tell the story.\n\nANSWER: ";
  JsonWriter line(JsonStyle::kCompact);
  line.begin_object();
  line.key("prefix");
  line.value(prefix);
  line.key("text");
  line.value(text);
  line.key("suffix");
  line.value(suffix);
  line.end();
  const std::string file = write(".jsonl", line.take() + "\n");
  for (const std::int64_t prefill : {100, 1000, 1001, 1002, 1003}) {
    const Dataset d = load_dataset({file, prefill, 1, 0, 1, 4096, {}}, encode);
    const std::vector<Token>& ids = d.prompts[0].tokens;
    ASSERT_EQ(ids.size(), static_cast<std::size_t>(prefill));
    EXPECT_EQ(ids.front(), 1);
    const std::string said = decoded_text(tokenizer, std::span(ids).subspan(1));
    EXPECT_EQ(said.substr(0, prefix.size() + 50), prefix + text.substr(0, 50));
    ASSERT_GT(said.size(), suffix.size());
    EXPECT_EQ(said.substr(said.size() - suffix.size()), suffix);
    const std::string middle =
        said.substr(prefix.size(), said.size() - prefix.size() - suffix.size());
    EXPECT_EQ(middle, text.substr(0, middle.size()));
    std::vector<Token> joined = tokenizer.encode(said);
    joined.insert(joined.begin(), 1);
    EXPECT_EQ(ids, joined) << prefill;
  }
}

struct Stop {};

TEST_F(Datasets, LoadingCanBeStopped) {
  int asked = 0;
  DatasetRequest request{"synthetic", 64, 1 << 20, 42, 1, 300, {}};
  request.check_stop = [&] {
    if (++asked == 5) throw Stop();
  };
  EXPECT_THROW(load_dataset(request, nullptr), Stop);
  request.name = write(".ids", "5 6 7\n5 6 7\n5 6 7\n5 6 7\n5 6 7\n5 6 7\n");
  request.prefill = 100;  // all are too short
  asked = 0;
  EXPECT_THROW(load_dataset(request, nullptr), Stop);
}

TEST_F(Datasets, PromptsFitInTheMemoryGiven) {
  DatasetRequest request{"synthetic", 64, 10, 42, 1, 300, {}};
  request.max_bytes = 10 * 64 * static_cast<std::int64_t>(sizeof(Token));
  EXPECT_EQ(load_dataset(request, nullptr).prompts.size(), 10U);
  --request.max_bytes;
  try {
    load_dataset(request, nullptr);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kResources);
    EXPECT_NE(std::string(e.what()).find("at most 9 prompts"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace triforce
