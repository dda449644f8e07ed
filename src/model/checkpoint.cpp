// Tests: tests/model/checkpoint/checkpoint_test.cpp, tests/model/checkpoint/tensors_test.cpp
#include "triforce/checkpoint.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/file.h"
#include "core/sha256.h"
#include "core/utf8.h"
#include "model/file_index.h"
#include "model/llama_tensors.h"
#include "model/safetensors.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.json";
constexpr const char* kGenerationFile = "generation_config.json";
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// A small text file of the checkpoint, symlinks checked, download mistakes named as such.
std::string read_text(const fs::path& dir, const char* name, std::int64_t max_bytes,
                      const char* kind) {
  std::string text = read_file(resolve_inside(dir, name), max_bytes);
  if (const std::string mistake = download_mistake(text); !mistake.empty()) {
    throw_input(kind, "{}: this is {}", (dir / name).string(), mistake);
  }
  return text;
}

// "[2, 3]"
std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// The first `most` of them as text, "..." for others.
template <class T, class Text>
std::string first_of(const std::vector<T>& all, std::size_t most, const Text& text) {
  std::string out;
  for (std::size_t i = 0; i < std::min(all.size(), most); ++i) {
    out += (i == 0 ? "" : "; ") + text(all[i]);
  }
  return out + (all.size() > most ? "; ..." : "");
}

// The tensors that a Llama of this configuration reads.
std::unordered_set<std::string> needed_names(const ModelConfig& config) {
  std::unordered_set<std::string> names;
  for (NamedShape& t : llama_tensors(config)) names.insert(std::move(t.name));
  return names;
}

// Names what there is instead of a safetensors checkpoint.
[[noreturn]] void throw_no_weights(const fs::path& dir) {
  bool bin = false, parts = false;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    bin = bin || name.ends_with(".bin") || name.ends_with(".pth") || name.ends_with(".pt");
    parts = parts || name.ends_with(".safetensors");
  }
  if (parts) {
    throw_input("MissingFile", "{}: has .safetensors files but neither {} nor {}", dir.string(),
                kSingleFile, kIndexFile);
  }
  if (bin) {
    throw_input("UnsupportedCheckpoint",
                "{}: has PyTorch .bin weights only, which are not read because they can run code; "
                "convert them with: scripts/convert_checkpoint.py {}",
                dir.string(), dir.string());
  }
  throw_input("MissingFile", "{}: neither {} nor {} is there", dir.string(), kSingleFile,
              kIndexFile);
}

}  // namespace

struct Checkpoint::Impl {
  struct File {
    fs::path path;  // resolved
    std::string name;
    FileIdentity identity;
  };

  fs::path dir;
  ModelConfig config;
  std::string config_sha256;
  std::vector<File> files;
  std::vector<TensorInfo> tensors;
  std::vector<std::size_t> file_of;  // per tensor
  std::unordered_map<std::string_view, std::size_t> by_name;
  std::vector<std::string> warnings;

  void add_file(const std::string& name, const SafetensorsLimits& limits);
  FileIndex read_files(const SafetensorsLimits& limits);
  void check_index(const FileIndex& index);
  void index_names();
  std::vector<const TensorInfo*> unneeded() const;  // what no Llama of config reads
  void note_unneeded();
};

// Validates the header of one file; all of its tensors are appended.
void Checkpoint::Impl::add_file(const std::string& name, const SafetensorsLimits& limits) {
  const InputFile in = InputFile::open(resolve_inside(dir, name));
  SafetensorsHeader header = read_safetensors_header(in, limits);
  for (TensorInfo& t : header.tensors) {
    tensors.push_back(std::move(t));
    file_of.push_back(files.size());
  }
  files.push_back({in.path(), name, in.identity()});
}

void Checkpoint::Impl::index_names() {
  by_name.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto [it, fresh] = by_name.emplace(tensors[i].name, i);
    if (!fresh) {
      throw_input("ShardMismatch", "{}: tensor {} is in both {} and {}", dir.string(),
                  quote_text(tensors[i].name), files[file_of[it->second]].name,
                  files[file_of[i]].name);
    }
  }
}

// Adds the files of the index.
FileIndex Checkpoint::Impl::read_files(const SafetensorsLimits& limits) {
  FileIndex index = parse_file_index(read_text(dir, kIndexFile, kMaxIndexBytes, "InvalidIndex"),
                                     (dir / kIndexFile).string());
  for (const std::string& name : index.files) {
    if (!is_there(dir / name)) {
      throw_input("ShardMissing", "{}: shard {} named by {} is not there", dir.string(), name,
                  kIndexFile);
    }
    add_file(name, limits);
  }
  return index;
}

std::vector<const TensorInfo*> Checkpoint::Impl::unneeded() const {
  const std::unordered_set<std::string> needed = needed_names(config);
  std::vector<const TensorInfo*> out;
  for (const TensorInfo& t : tensors) {
    if (!needed.contains(t.name)) out.push_back(&t);
  }
  return out;
}

// Buffers of old writers, or the head of a tied model: nothing reads them.
void Checkpoint::Impl::note_unneeded() {
  const TensorInfo* first = nullptr;
  std::size_t extra = 0;
  for (const TensorInfo* t : unneeded()) {
    if (changes_llama(config, t->name)) continue;
    if (first == nullptr) first = t;
    ++extra;
  }
  if (extra == 0) return;
  const std::string name = quote_text(first->name);
  warnings.push_back(
      extra == 1 ? fmt::format("1 tensor is no part of the model and ignored: {}", name)
                 : fmt::format("{} tensors are no part of the model and ignored, the first is {}",
                               extra, name));
}

// The index and its files must say the same; a tensor that no Llama needs may be unlisted.
void Checkpoint::Impl::check_index(const FileIndex& index) {
  for (const auto& [name, file] : index.tensors) {
    const auto it = by_name.find(name);
    if (it == by_name.end() || files[file_of[it->second]].name != index.files[file]) {
      throw_input("ShardMismatch", "{}: tensor {} should be in {}, found {}", dir.string(),
                  quote_text(name), index.files[file],
                  it == by_name.end() ? "nowhere" : "in " + files[file_of[it->second]].name);
    }
  }
  std::unordered_set<std::string_view> listed;
  for (const auto& [name, file] : index.tensors) listed.insert(name);
  const std::unordered_set<std::string> needed = needed_names(config);
  std::uint64_t data_bytes = 0;
  int unlisted = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    data_bytes += static_cast<std::uint64_t>(tensors[i].end - tensors[i].begin);
    if (listed.contains(tensors[i].name)) continue;
    const std::string what =
        fmt::format("tensor {} in {} is not in {}", quote_text(tensors[i].name),
                    files[file_of[i]].name, kIndexFile);
    if (needed.contains(tensors[i].name)) {
      throw_input("ShardMismatch", "{}: {}", dir.string(), what);
    }
    if (++unlisted <= 10) warnings.push_back(what);
  }
  if (index.total_size && *index.total_size != data_bytes) {
    warnings.push_back(fmt::format("{} says total_size {}, the shards hold {} bytes of tensors",
                                   kIndexFile, *index.total_size, data_bytes));
  }
}

namespace {

// config.json, and what it and generation_config.json say.
std::pair<std::string, ModelConfig> read_config_text(const fs::path& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) {
    throw_input("FileNotFound", "{}: {}", dir.string(),
                is_there(dir) ? "expected a checkpoint folder, found a file" : "no such folder");
  }
  if (!is_there(dir / kConfigFile)) {
    throw_input("MissingFile", "{}: {} is not there", dir.string(), kConfigFile);
  }
  std::string text = read_text(dir, kConfigFile, kMaxConfigBytes, "InvalidConfig");
  ModelConfig config = parse_model_config(text, (dir / kConfigFile).string());
  const fs::path named = dir.has_filename() ? dir : dir.parent_path();
  config.name = named.filename().string();
  if (is_there(dir / kGenerationFile)) {
    apply_generation_config(read_text(dir, kGenerationFile, kMaxConfigBytes, "InvalidConfig"),
                            (dir / kGenerationFile).string(), config);
  }
  return {std::move(text), std::move(config)};
}

}  // namespace

ModelConfig read_checkpoint_config(const fs::path& dir) { return read_config_text(dir).second; }

Checkpoint Checkpoint::open(const fs::path& dir, const SafetensorsLimits& limits) {
  auto [text, config] = read_config_text(dir);
  auto impl = std::make_unique<Impl>();
  impl->dir = dir;
  impl->config = std::move(config);
  impl->config_sha256 = sha256_hex(text);
  impl->warnings = impl->config.notes;
  const bool single = is_there(dir / kSingleFile), several = is_there(dir / kIndexFile);
  if (single && several) {
    impl->warnings.push_back(
        fmt::format("both {} and {} are there; the single file is used", kSingleFile, kIndexFile));
  }
  std::optional<FileIndex> index;
  if (single) {
    impl->add_file(kSingleFile, limits);
  } else if (several) {
    index = impl->read_files(limits);
  } else {
    throw_no_weights(dir);
  }
  impl->index_names();
  if (index) impl->check_index(*index);
  impl->note_unneeded();
  return Checkpoint(std::move(impl));
}

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

const ModelConfig& Checkpoint::config() const { return impl_->config; }
const fs::path& Checkpoint::dir() const { return impl_->dir; }
const std::string& Checkpoint::config_sha256() const { return impl_->config_sha256; }
const std::vector<TensorInfo>& Checkpoint::tensors() const { return impl_->tensors; }
const std::vector<std::string>& Checkpoint::warnings() const { return impl_->warnings; }

std::vector<std::string> Checkpoint::files() const {
  std::vector<std::string> names;
  for (const Impl::File& f : impl_->files) names.push_back(f.name);
  return names;
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto it = impl_->by_name.find(name);
  return it == impl_->by_name.end() ? nullptr : &impl_->tensors[it->second];
}

void Checkpoint::read_rows(std::string_view name, std::span<const std::int64_t> expected_shape,
                           std::int64_t row_begin, std::int64_t rows, std::vector<std::byte>& out,
                           DType& dtype, PageCache cache) const {
  const auto it = impl_->by_name.find(name);
  if (it == impl_->by_name.end()) {
    throw_input("MissingTensor", "{}: tensor {} is not there", dir().string(), quote_text(name));
  }
  const TensorInfo& t = impl_->tensors[it->second];
  const Impl::File& file = impl_->files[impl_->file_of[it->second]];
  if (!std::equal(t.shape.begin(), t.shape.end(), expected_shape.begin(), expected_shape.end())) {
    throw_input("ShapeMismatch", "{}: tensor {} has shape {}, expected {}", file.path.string(),
                quote_text(name), shape_text(t.shape), shape_text(expected_shape));
  }
  const std::optional<DType> type = loadable_dtype(t.dtype);
  if (!type) {
    throw_input("UnsupportedDtype", "{}: tensor {} is {}, expected F32, F16 or BF16",
                file.path.string(), quote_text(name), t.dtype);
  }
  TF_CHECK(!t.shape.empty() && row_begin >= 0 && rows >= 0 && row_begin <= t.shape[0] - rows,
           "rows [{}, {} + {}) of {}", row_begin, row_begin, rows, shape_text(t.shape));
  // The header was validated: the whole tensor fits, so every part of it does.
  const std::int64_t row_bytes = t.shape[0] == 0 ? 0 : (t.end - t.begin) / t.shape[0];
  const InputFile in = InputFile::open(file.path);
  if (in.identity() != file.identity) {
    throw_input("FileChanged", "{}: changed since its header was read", file.path.string());
  }
  out.resize(static_cast<std::size_t>(rows * row_bytes));
  const std::int64_t begin = t.begin + row_begin * row_bytes;
  in.read_exact(begin, out);
  if (cache == PageCache::kDrop) in.drop_pages(begin, rows * row_bytes);
  dtype = *type;
}

void Checkpoint::check_llama_tensors() const {
  std::vector<std::string> wrong;
  const char* kind = nullptr;
  const auto add = [&](const char* k, std::string text) {
    if (kind == nullptr) kind = k;
    wrong.push_back(std::move(text));
  };
  const std::vector<NamedShape> llama = llama_tensors(config());
  for (const NamedShape& want : llama) {
    const TensorInfo* t = find(want.name);
    if (t == nullptr) {
      add("MissingTensor", want.name + " is missing");
    } else if (t->shape != want.shape) {
      add("ShapeMismatch", fmt::format("{} has shape {}, expected {}", want.name,
                                       shape_text(t->shape), shape_text(want.shape)));
    } else if (!loadable_dtype(t->dtype)) {
      add("UnsupportedDtype",
          fmt::format("{} is {}, expected F32, F16 or BF16", want.name, t->dtype));
    }
  }
  const std::vector<const TensorInfo*> unneeded = impl_->unneeded();
  if (kind != nullptr) {
    const std::string there =
        unneeded.empty()
            ? ""
            : fmt::format(
                  "; of {} tensors that are there {} are none of a {}: {}", tensors().size(),
                  unneeded.size(), to_string(config().architecture),
                  first_of(unneeded, 3, [](const TensorInfo* t) { return quote_text(t->name); }));
    throw_input(kind, "{}: {} of {} tensors are wrong: {}{}", dir().string(), wrong.size(),
                llama.size(), first_of(wrong, 10, [](const std::string& w) { return w; }), there);
  }
  std::vector<std::string> foreign;
  for (const TensorInfo* t : unneeded) {
    if (changes_llama(config(), t->name)) foreign.push_back(quote_text(t->name));
  }
  if (foreign.empty()) return;
  throw_input("UnsupportedTensor",
              "{}: expected the tensors of a {}, found {} more that another architecture "
              "computes with: {}",
              dir().string(), to_string(config().architecture), foreign.size(),
              first_of(foreign, 10, [](const std::string& name) { return name; }));
}

void Checkpoint::check_tied_head() const {
  constexpr const char* kHead = "lm_head.weight";
  constexpr std::int64_t kBlockBytes = std::int64_t{4} << 20;
  const ModelConfig& c = config();
  if (!c.tied_embeddings || find(kHead) == nullptr) return;
  const std::array<std::int64_t, 2> shape = {c.vocab, c.hidden};
  const std::string table = part_name(c, WeightPart::kEmbed, 0);
  const std::int64_t step = std::max<std::int64_t>(1, kBlockBytes / (c.hidden * 4));
  std::vector<std::byte> a, b;
  DType of_table{}, of_head{};
  for (std::int64_t row = 0; row < c.vocab; row += step) {
    const std::int64_t rows = std::min(step, c.vocab - row);
    read_rows(table, shape, row, rows, a, of_table);
    read_rows(kHead, shape, row, rows, b, of_head);
    if (of_table == of_head && a == b) continue;
    throw_input("UnsupportedTensor",
                "{}: {}: expected the values of {}, to which tie_word_embeddings ties it, found "
                "others; set it to false in config.json or remove the tensor",
                dir().string(), kHead, table);
  }
}

}  // namespace triforce
