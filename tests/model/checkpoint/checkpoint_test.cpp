// Folders in Hugging Face layout: one file, shards, symlinks, and what must be refused.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/sha256.h"
#include "model/checkpoint/checkpoint_folder.h"
#include "model/checkpoint_summary.h"
#include "model/file_index.h"
#include "triforce/checkpoint.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;
using testing_files::CheckpointTest;
using testing_files::file_of;
using testing_files::kConfig;
using testing_files::llama;
using testing_files::message;
using testing_files::Stored;
using testing_files::TemporaryFolder;
using testing_files::verdict;

TEST_F(CheckpointTest, SingleFile) {
  write("model.safetensors", file_of(llama(), 5));
  const Checkpoint c = Checkpoint::open(dir());
  c.check_llama_tensors();
  EXPECT_EQ(c.config().layers, 2);
  EXPECT_EQ(c.config().name, dir().filename().string());
  EXPECT_EQ(c.tensors().size(), 21U);
  EXPECT_TRUE(c.warnings().empty());
  EXPECT_EQ(c.config_sha256().size(), 64U);
  EXPECT_EQ(c.find("nothing"), nullptr);
  std::vector<std::byte> out;
  DType dtype = DType::kI32;
  const std::vector<std::int64_t> shape = {16, 32};
  c.read_rows("model.layers.1.self_attn.k_proj.weight", shape, 3, 2, out, dtype);
  EXPECT_EQ(dtype, DType::kF32);
  ASSERT_EQ(out.size(), 2U * 32 * 4);
  float x = 0;
  std::memcpy(&x, out.data(), sizeof x);
  EXPECT_EQ(x, 5 + 3 * 32);
  std::memcpy(&x, out.data() + out.size() - sizeof x, sizeof x);
  EXPECT_EQ(x, 5 + 5 * 32 - 1);
  const std::vector<std::int64_t> norm = {32};
  c.read_rows("model.norm.weight", norm, 0, 32, out, dtype);
  EXPECT_EQ(out.size(), 32U * 4);
}

TEST_F(CheckpointTest, ReadRowsRefusesWhatDoesNotFit) {
  std::vector<Stored> tensors = llama();
  tensors.push_back({"extra", "I64", {2}});
  write("model.safetensors", file_of(tensors));
  const Checkpoint c = Checkpoint::open(dir());
  c.check_llama_tensors();
  ASSERT_EQ(c.warnings().size(), 1U);
  EXPECT_NE(c.warnings()[0].find("extra"), std::string::npos);
  std::vector<std::byte> out;
  DType dtype{};
  const auto read = [&](const char* name, std::vector<std::int64_t> shape) {
    return verdict([&] { c.read_rows(name, shape, 0, 1, out, dtype); });
  };
  EXPECT_EQ(read("model.norm.bias", {32}), "MissingTensor");
  EXPECT_EQ(read("model.norm.weight", {31}), "ShapeMismatch");
  EXPECT_EQ(read("model.norm.weight", {32, 1}), "ShapeMismatch");
  EXPECT_EQ(read("extra", {2}), "UnsupportedDtype");
  EXPECT_THROW(c.read_rows("model.norm.weight", std::vector<std::int64_t>{32}, 30, 3, out, dtype),
               Error);
}

TEST_F(CheckpointTest, FileThatChangesWhileInUseIsNoticed) {
  write("model.safetensors", file_of(llama()));
  const Checkpoint c = Checkpoint::open(dir());
  const fs::path file = dir() / "model.safetensors";
  fs::resize_file(file, fs::file_size(file) - 100);
  std::vector<std::byte> out;
  DType dtype{};
  const std::vector<std::int64_t> shape = {20, 32};
  EXPECT_EQ(verdict([&] { c.read_rows("lm_head.weight", shape, 0, 20, out, dtype); }),
            "FileChanged");
}

TEST_F(CheckpointTest, GenerationConfigIsReadBesideConfig) {
  write("model.safetensors", file_of(llama()));
  write("generation_config.json", R"({"eos_token_id": [3, 4]})");
  const Checkpoint c = Checkpoint::open(dir());
  EXPECT_EQ(c.config().eos, (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(read_checkpoint_config(dir()).eos, (std::vector<std::int32_t>{3, 4}));
  ASSERT_EQ(c.warnings().size(), 1U);
  EXPECT_EQ(c.warnings(), c.config().notes);
  EXPECT_EQ(c.config_sha256(), sha256_hex(kConfig));
  write("generation_config.json", R"({"eos_token_id": [20]})");
  EXPECT_EQ(open_verdict(), "InvalidConfig");
  EXPECT_NE(open_message().find("generation_config.json"), std::string::npos);
  write("generation_config.json", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_NE(open_message().find("Git LFS pointer"), std::string::npos);
  fs::remove(dir() / "generation_config.json");
  fs::create_symlink("/etc/hostname", dir() / "generation_config.json");
  EXPECT_EQ(open_verdict(), "PathEscape");
}

TEST_F(CheckpointTest, Shards) {
  write_shards();
  const Checkpoint c = Checkpoint::open(dir());
  c.check_llama_tensors();
  EXPECT_EQ(c.tensors().size(), 21U);
  EXPECT_TRUE(c.warnings().empty());
  std::vector<std::byte> out;
  DType dtype{};
  const std::vector<std::int64_t> shape = {20, 32};
  c.read_rows("model.embed_tokens.weight", shape, 0, 20, out, dtype);
  c.read_rows("lm_head.weight", shape, 0, 20, out, dtype);
  EXPECT_EQ(out.size(), 20U * 32 * 4);
}

TEST_F(CheckpointTest, UnreliableTotalSizeIsAWarning) {
  write_shards(right_index(12345));
  EXPECT_EQ(open_verdict(), "accept");
  ASSERT_EQ(Checkpoint::open(dir()).warnings().size(), 1U);
  EXPECT_NE(Checkpoint::open(dir()).warnings()[0].find("12345"), std::string::npos);
}

TEST_F(CheckpointTest, SingleFileGoesBeforeAnIndex) {
  write_shards();
  write("model.safetensors", file_of(llama(), 7));
  const Checkpoint c = Checkpoint::open(dir());
  ASSERT_EQ(c.warnings().size(), 1U);
  EXPECT_NE(c.warnings()[0].find("single file is used"), std::string::npos);
  std::vector<std::byte> out;
  DType dtype{};
  c.read_rows("model.norm.weight", std::vector<std::int64_t>{32}, 0, 1, out, dtype);
  float x = 0;
  std::memcpy(&x, out.data(), sizeof x);
  EXPECT_EQ(x, 7);
}

TEST_F(CheckpointTest, IndexAndShardsThatDisagree) {
  write_shards();
  std::vector<Stored> all = llama();
  const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
  const std::vector<Stored> a(all.begin(), all.begin() + half), b(all.begin() + half, all.end());
  write(kB, file_of(a));  // every tensor of the first shard twice, those of the second nowhere
  EXPECT_EQ(open_verdict(), "ShardMismatch");
  std::vector<Stored> short_b(b.begin(), b.end() - 1);
  write(kB, file_of(short_b));  // listed but absent
  EXPECT_EQ(open_verdict(), "ShardMismatch");
  std::vector<Stored> long_b = b;
  long_b.push_back({"rotary_emb.inv_freq", "F32", {8}});
  write(kB, file_of(long_b));  // unlisted, and no part of a Llama
  EXPECT_EQ(open_verdict(), "accept");
  EXPECT_FALSE(Checkpoint::open(dir()).warnings().empty());
  write(kB, file_of(b));
  std::string index = right_index();
  const std::size_t at = index.rfind(",\"lm_head.weight\"");
  index.erase(at, index.rfind("\"}") + 1 - at);  // a needed tensor that is unlisted
  write("model.safetensors.index.json", index);
  EXPECT_EQ(open_verdict(), "ShardMismatch");
  fs::remove(dir() / kA);
  EXPECT_EQ(open_verdict(), "ShardMissing");
}

TEST_F(CheckpointTest, FoldersWithoutSafetensors) {
  EXPECT_EQ(open_verdict(), "MissingFile");
  write("pytorch_model.bin", "x");
  EXPECT_EQ(open_verdict(), "UnsupportedCheckpoint");
  EXPECT_NE(open_message().find("scripts/convert_checkpoint.py"), std::string::npos);
  write(kA, file_of(llama()));  // a shard without its index
  EXPECT_EQ(open_verdict(), "MissingFile");
  fs::remove(dir() / "config.json");
  EXPECT_EQ(open_verdict(), "MissingFile");
  EXPECT_EQ(verdict([&] { Checkpoint::open(dir() / "absent"); }), "FileNotFound");
  EXPECT_EQ(verdict([&] { Checkpoint::open(dir() / kA); }), "FileNotFound");
}

TEST_F(CheckpointTest, DownloadMistakesAreNamed) {
  write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n");
  EXPECT_EQ(open_verdict(), "HeaderTooLarge");
  EXPECT_NE(open_message().find("Git LFS pointer"), std::string::npos);
  write("config.json", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_EQ(open_verdict(), "InvalidConfig");
  EXPECT_NE(open_message().find("Git LFS pointer"), std::string::npos);
}

TEST_F(CheckpointTest, OnlyRegularFilesAreOpened) {
  ASSERT_EQ(::mkfifo((dir() / "model.safetensors").c_str(), 0600), 0);
  EXPECT_EQ(open_verdict(), "NotRegularFile");  // and returns at once
  fs::remove(dir() / "model.safetensors");
  fs::create_directory(dir() / "model.safetensors");
  EXPECT_EQ(open_verdict(), "NotRegularFile");
  fs::remove(dir() / "model.safetensors");
  fs::create_symlink("/dev/zero", dir() / "model.safetensors");
  EXPECT_EQ(open_verdict(), "PathEscape");
  fs::remove(dir() / "model.safetensors");
  fs::create_symlink("nowhere", dir() / "model.safetensors");
  EXPECT_EQ(open_verdict(), "FileNotFound");
}

// models--x/snapshots/<revision>/file -> ../../blobs/<hash>
TEST_F(CheckpointTest, SymlinksOfTheHubCacheAreFollowedAndNoOthers) {
  const TemporaryFolder hub;
  hub.write("models--x/blobs/aaaa", kConfig);
  hub.write("models--x/blobs/bbbb", file_of(llama()));
  hub.write("other/model.safetensors", file_of(llama()));
  const fs::path snapshot = hub.path() / "models--x/snapshots/0123";
  fs::create_directories(snapshot);
  fs::create_symlink("../../blobs/aaaa", snapshot / "config.json");
  fs::create_symlink("../../blobs/bbbb", snapshot / "model.safetensors");
  EXPECT_EQ(verdict([&] { Checkpoint::open(snapshot).check_llama_tensors(); }), "accept");
  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink("../../../other/model.safetensors", snapshot / "model.safetensors");
  EXPECT_EQ(verdict([&] { Checkpoint::open(snapshot); }), "PathEscape");
  // Inside the folder itself a symlink is fine; the folder may be reached through one.
  write("weights/real.safetensors", file_of(llama()));
  fs::create_symlink("weights/real.safetensors", dir() / "model.safetensors");
  fs::create_symlink(dir(), hub.path() / "link");
  EXPECT_EQ(verdict([&] { Checkpoint::open(hub.path() / "link").check_llama_tensors(); }),
            "accept");
}

TEST_F(CheckpointTest, SummaryOfAFolderAndOfAFile) {
  write_shards();
  write("config.json",
        std::string(kConfig.substr(0, kConfig.size() - 1)) + ", \"auto_map\": {\"a\": \"b.c\"}}");
  const CheckpointSummary s = summarize_checkpoint(dir());
  EXPECT_EQ(s.files, (std::vector<std::string>{kA, kB}));
  ASSERT_TRUE(s.config.has_value());
  EXPECT_EQ(s.config->layers, 2);
  EXPECT_EQ(s.config_sha256.size(), 64U);
  EXPECT_EQ(s.tensors.size(), 21U);
  EXPECT_EQ(s.elements, s.config->parameters());
  EXPECT_EQ(s.bytes, s.config->parameters() * 4);
  ASSERT_EQ(s.warnings.size(), 1U);
  EXPECT_NE(s.warnings[0].find("auto_map"), std::string::npos);
  EXPECT_EQ(config_lines(*s.config)[1],
            (std::pair<std::string, std::string>{"architecture", "LlamaForCausalLM"}));

  const CheckpointSummary f = summarize_checkpoint(dir() / kA);
  EXPECT_FALSE(f.config.has_value());
  EXPECT_EQ(f.tensors.size(), 10U);
  EXPECT_EQ(f.tensors[0].name, "model.embed_tokens.weight");
  EXPECT_EQ(f.tensors[0].shape, (std::vector<std::int64_t>{20, 32}));
  EXPECT_EQ(f.tensors[0].end - f.tensors[0].begin, 20 * 32 * 4);
  fs::remove(dir() / kB);
  EXPECT_EQ(verdict([&] { summarize_checkpoint(dir()); }), "ShardMissing");
  EXPECT_EQ(verdict([&] { summarize_checkpoint(dir() / kB); }), "FileNotFound");
}

std::string index_kind(const std::string& text) {
  return verdict([&] { parse_file_index(text, "index.json"); });
}
std::string index_of(const std::string& file) {
  return fmt::format(R"({{"weight_map": {{"a": "{}"}}}})", file);
}

TEST(FileIndex, Verdicts) {
  EXPECT_EQ(index_kind(index_of("m.safetensors")), "accept");
  EXPECT_EQ(index_kind(index_of("../m.safetensors")), "PathEscape");
  EXPECT_EQ(index_kind(index_of("/m.safetensors")), "PathEscape");
  EXPECT_EQ(index_kind(index_of("a\\\\m.safetensors")), "PathEscape");
  EXPECT_EQ(index_kind(index_of("..")), "PathEscape");
  EXPECT_EQ(index_kind(index_of(".")), "PathEscape");
  EXPECT_EQ(index_kind(index_of("m\\u0000.safetensors")), "BadName");
  EXPECT_EQ(index_kind(index_of(".m.safetensors")), "BadName");
  EXPECT_EQ(index_kind(index_of("m.bin")), "BadName");
  EXPECT_EQ(index_kind(index_of("")), "BadName");
  EXPECT_EQ(index_kind(index_of(std::string(244, 'm') + ".safetensors")), "BadName");
  EXPECT_EQ(index_kind("[]"), "InvalidIndex");
  EXPECT_EQ(index_kind("{}"), "InvalidIndex");
  EXPECT_EQ(index_kind(R"({"weight_map": {}})"), "InvalidIndex");
  EXPECT_EQ(index_kind(R"({"weight_map": []})"), "InvalidIndex");
  EXPECT_EQ(index_kind(R"({"weight_map": {"a": 1}})"), "InvalidIndex");
  EXPECT_EQ(index_kind(R"({"weight_map": {"a": "m.safetensors", "a": "m.safetensors"}})"),
            "DuplicateKey");
  EXPECT_EQ(
      index_kind(R"({"metadata": {"total_size": 1.5e10}, "weight_map": {"a": "m.safetensors"}})"),
      "accept");
  EXPECT_EQ(index_kind(R"({"metadata": null, "weight_map": {"a": "m.safetensors"}})"), "accept");
  std::string many;
  for (int i = 0; i < 1025; ++i) {
    many += fmt::format(R"({}"t{}": "m{}.safetensors")", i == 0 ? "" : ",", i, i);
  }
  EXPECT_EQ(index_kind(fmt::format(R"({{"weight_map": {{{}}}}})", many)), "LimitExceeded");
}

TEST(FileIndex, FilesAreSortedAndUnique) {
  const FileIndex index = parse_file_index(
      R"({"metadata": {"total_size": 12}, "weight_map":
          {"z": "a.safetensors", "b": "c.safetensors", "a": "a.safetensors"}})",
      "index.json");
  EXPECT_EQ(index.files, (std::vector<std::string>{"a.safetensors", "c.safetensors"}));
  ASSERT_EQ(index.tensors.size(), 3U);
  EXPECT_EQ(index.tensors[0], (std::pair<std::string, std::size_t>{"a", 0}));
  EXPECT_EQ(index.tensors[1], (std::pair<std::string, std::size_t>{"b", 1}));
  EXPECT_EQ(index.total_size, 12U);
}

TEST(Checkpoint, BuiltInPairOpens) {
  for (const char* name : {"target", "draft"}) {
    const Checkpoint c = Checkpoint::open(fmt::format("{}/data/models/{}", TF_SOURCE_DIR, name));
    c.check_llama_tensors();
    EXPECT_EQ(c.config().name, name);
    EXPECT_TRUE(c.warnings().empty());
  }
}

}  // namespace
}  // namespace triforce
