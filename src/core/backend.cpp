// These checks say what every operation asks of its arguments, once for all backends. Nothing here
// allocates unless a check fails.
// Tests: tests/backend/preconditions_test.cpp
#include "triforce/backend.h"

#include <cmath>
#include <initializer_list>
#include <limits>

#include "triforce/host_attention.h"
#include "triforce/host_kv_order.h"

namespace triforce {
namespace {

// Sets of types, one bit each.
constexpr unsigned bit(DType t) { return 1U << static_cast<unsigned>(t); }
constexpr unsigned kF32 = bit(DType::kF32), kI32 = bit(DType::kI32);
constexpr unsigned kFloats = kF32 | bit(DType::kF16) | bit(DType::kBF16);

unsigned activations(const Backend::Traits& t) {
  return t.formats == Backend::Formats::kAll ? kFloats : bit(t.activation);
}
unsigned stored(const Backend::Traits& t) {
  return t.formats == Backend::Formats::kActivation ? bit(t.activation) : kFloats;
}

template <class Shape>
std::string shape_text(const Shape& shape, std::size_t rank) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.begin() + rank, ", "));
}
std::string types_text(unsigned types) {
  std::string text;
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16, DType::kI32}) {
    if ((types & bit(t)) != 0) text += fmt::format("{}{}", text.empty() ? "" : "/", to_string(t));
  }
  return text;
}

enum class Gaps : std::uint8_t { kBetweenRows, kNone };

// `v` has memory, one of `types`, these sizes, all positive, and no gaps within its rows (elements
// of its first dimension; all of a vector) or at all.
void expect(const char* what, const TensorView& v, unsigned types,
            std::initializer_list<std::int64_t> shape, Gaps gaps = Gaps::kBetweenRows) {
  bool ok = v.data != nullptr && (bit(v.dtype) & types) != 0 && v.rank == shape.size();
  std::size_t i = 0;
  for (const std::int64_t n : shape) ok = ok && n > 0 && v.shape[i++] == n;
  ok =
      ok && (gaps == Gaps::kNone || v.rank == 1 ? v.is_contiguous() : v.rows(0, 1).is_contiguous());
  TF_CHECK(ok, "{}: expected {} {} in memory{}, found {} {}{}", what, types_text(types),
           shape_text(shape, shape.size()), gaps == Gaps::kNone ? " without gaps" : "",
           to_string(v.dtype), shape_text(v.shape, v.rank), v.data == nullptr ? " without it" : "");
}

void expect_apart(const char* op, const TensorView& a, const TensorView& b) {
  TF_CHECK(a.data != b.data, "{}: input and output are the same memory", op);
}

// Every one of ids[n] or ids[h, n] is in [0, count).
void expect_ids(const char* what, const TensorView& ids, std::int64_t count) {
  const std::int64_t rows = ids.rank == 1 ? 1 : ids.shape[0];
  const std::int64_t stride = ids.rank == 1 ? 0 : ids.stride[0];
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int32_t* row = ids.as<std::int32_t>() + r * stride;
    for (std::int64_t i = 0; i < ids.shape[ids.rank - 1U]; ++i) {
      TF_CHECK(row[i] >= 0 && row[i] < count, "{} {}: expected 0 to {}", what, row[i], count - 1);
    }
  }
}

void expect_kv(const char* op, const KvView& kv, const Backend::Traits& t) {
  TF_CHECK(kv.k != nullptr && kv.v != nullptr, "{}: KV rows without memory", op);
  TF_CHECK((bit(kv.format.type) & stored(t)) != 0, "{}: expected KV rows of {}, found {}", op,
           types_text(stored(t)), to_string(kv.format.type));
  TF_CHECK(kv.first_head >= 0 && kv.first_head + kv.kv_heads <= kv.layer_heads,
           "{}: KV heads [{}, {}) of {}", op, kv.first_head, kv.first_head + kv.kv_heads,
           kv.layer_heads);
  TF_CHECK(kv.kv_heads > 0 && kv.head_dim > 0 && kv.head_dim % t.head_dim_step == 0 &&
               kv.head_dim <= t.max_head_dim,
           "{}: {} KV heads of {} dimensions; expected a multiple of {} up to {}", op, kv.kv_heads,
           kv.head_dim, t.head_dim_step, t.max_head_dim);
  TF_CHECK(kv.capacity > 0 && kv.capacity % t.kv_granule == 0,
           "{}: capacity of {} KV rows: expected a multiple of {}", op, kv.capacity, t.kv_granule);
  TF_CHECK(kv.kv_heads == 1 || kv.head_stride >= kv.capacity * kv.head_dim,
           "{}: KV heads {} elements apart, of {} rows of {}", op, kv.head_stride, kv.capacity,
           kv.head_dim);
}

void expect_groups(const char* op, const KvView& kv) {
  const KvGroups& g = kv.older;
  TF_CHECK(g.v != nullptr && g.capacity > 0 && g.used != nullptr &&
               g.quantisation != Quantisation::kNone && kv.head_dim % 16 == 0,
           "{}: {} groups of {} dimensions in {}{}", op, g.capacity, kv.head_dim,
           to_string(g.quantisation), g.used == nullptr ? ", without a number of them" : "");
}

// Query heads of each KV head, of q[T, h, d].
std::int64_t group_of(const char* op, const TensorView& q, const KvView& kv) {
  TF_CHECK(q.rank == 3 && q.shape[1] > 0 && q.shape[1] % kv.kv_heads == 0,
           "{}: {} query heads over {}", op, q.rank == 3 ? q.shape[1] : 0, kv.kv_heads);
  return q.shape[1] / kv.kv_heads;
}

// The views of a pass whose rows end at their lengths. Returns the rows of each sequence.
std::int64_t expect_sequences(const char* op, const TensorView& q,
                              std::span<const KvView> sequences, const Backend::Traits& t) {
  const auto count = static_cast<std::int64_t>(sequences.size());
  TF_CHECK(count >= 1 && sequences.size() <= kMaxSequences && q.shape[0] % count == 0,
           "{}: {} rows of {} sequences, at most {}", op, q.shape[0], count, kMaxSequences);
  const std::int64_t rows = q.shape[0] / count;
  TF_CHECK(rows <= kMaxPassRows, "{}: {} rows, at most {}", op, rows, kMaxPassRows);
  const KvView& one = sequences.front();
  for (const KvView& kv : sequences) {
    expect_kv(op, kv, t);
    TF_CHECK(kv.length != nullptr, "{}: KV rows without a length", op);
    TF_CHECK(
        kv.format == one.format && kv.first_head == one.first_head && kv.kv_heads == one.kv_heads &&
            kv.layer_heads == one.layer_heads && kv.head_dim == one.head_dim &&
            kv.on_host == one.on_host && kv.older.quantisation == one.older.quantisation &&
            static_cast<bool>(kv.older) == static_cast<bool>(one.older) &&
            (kv.appended == nullptr) == (one.appended == nullptr) &&
            (kv.parents == nullptr) == (one.parents == nullptr) && kv.tree_rows == one.tree_rows,
        "{}: sequences of different shapes", op);
    if (t.place != Place::kHost) continue;
    const std::int64_t added = kv.appended == nullptr ? rows : *kv.appended;
    TF_CHECK(added >= 0 && added <= rows && added <= *kv.length && *kv.length <= kv.capacity &&
                 (added > 0 || *kv.length == 0),
             "{}: {} new rows, {} with them, in a capacity of {}", op, added, *kv.length,
             kv.capacity);
  }
  return rows;
}

// The rows of draft trees that sequences end in, if they do.
void expect_tree_rows(std::span<const KvView> sequences, const Backend::Traits& t) {
  const std::int32_t rows = sequences.front().tree_rows;
  if (sequences.front().parents == nullptr) return;
  TF_CHECK(rows >= 1 && rows <= kMaxTreeRows, "attention: a tree of {} rows, at most {}", rows,
           kMaxTreeRows);
  for (const KvView& kv : sequences) {
    if (t.place != Place::kHost || *kv.length == 0) continue;
    TF_CHECK(rows <= *kv.length, "attention: a tree of {} of {} rows", rows, *kv.length);
    for (std::int32_t i = 0; i < rows; ++i) {
      TF_CHECK(kv.parents[i] >= -1 && kv.parents[i] < i, "attention: row {} of a tree follows {}",
               i, kv.parents[i]);
    }
  }
}

void expect_rope(const char* op, const RopeView& rope, const KvView& kv) {
  expect(op, rope.cos, kF32, {rope.cos.shape[0], kv.head_dim / 2}, Gaps::kNone);
  expect(op, rope.sin, kF32, {rope.cos.shape[0], kv.head_dim / 2}, Gaps::kNone);
}

void expect_attention(const TensorView& q, std::span<const KvView> sequences, const RopeView& rope,
                      const TensorView& out, std::span<const TensorView> mass, int chunk,
                      RowPath path, const Backend::Traits& t) {
  const std::int64_t rows = expect_sequences("attention", q, sequences, t), heads = q.shape[1];
  const KvView& kv = sequences.front();
  const bool exact = path == RowPath::kInvariant || throughput_path(rows) == RowPath::kInvariant;
  expect("attention: q", q, activations(t), {q.shape[0], heads, kv.head_dim});
  expect("attention: out", out, activations(t), {q.shape[0], heads * kv.head_dim});
  group_of("attention", q, kv);
  expect_apart("attention", q, out);
  if (kv.format.rotate_on_read) {
    expect_rope("attention: tables", rope, kv);
    for (const KvView& s : sequences) {
      TF_CHECK(t.place != Place::kHost || *s.length <= rope.cos.shape[0],
               "attention: tables of {} positions for {} rows", rope.cos.shape[0], *s.length);
    }
  }
  expect_tree_rows(sequences, t);
  for (const KvView& s : sequences) {
    if (!s.older) continue;
    expect_groups("attention", s);
    TF_CHECK(t.place != Place::kHost || (*s.older.used >= 0 && *s.older.used <= s.older.capacity),
             "attention: {} groups in a capacity of {}", *s.older.used, s.older.capacity);
  }
  const char* const kind = kv.appended != nullptr  ? " with padding"
                           : kv.parents != nullptr ? " with a tree"
                           : kv.older              ? " with groups"
                                                   : "";
  TF_CHECK(!kv.older || !(kv.on_host || kv.format.rotate_on_read),
           "attention: groups of keys that are {}", kv.on_host ? "on the host" : "not rotated");
  TF_CHECK(exact || *kind == 0, "attention: {} rows{} for throughput", rows, kind);
  if (!mass.empty()) {
    TF_CHECK(mass.size() == sequences.size() && *kind == 0,
             "attention: mass of {} of {} sequences{}", mass.size(), sequences.size(), kind);
    TF_CHECK(chunk > 0 && exact, "attention: mass of chunks of {} rows over {} queries{}", chunk,
             rows, exact ? "" : " for throughput");
    for (std::size_t s = 0; s < mass.size(); ++s) {
      expect("attention: mass", mass[s], kF32, {kv.kv_heads, sequences[s].capacity / chunk});
    }
  }
  TF_CHECK(!kv.on_host || (exact && !kv.format.rotate_on_read),
           "attention: {} rows on the host{}{}", rows, exact ? "" : " for throughput",
           kv.format.rotate_on_read ? ", keys that are rotated when read" : "");
}

void expect_requests(const char* op, std::size_t count, std::size_t most) {
  TF_CHECK(count >= 1 && count <= most, "{}: {} requests, expected 1 to {}", op, count, most);
}

// [vocab] f32 of any rank.
void expect_distribution(const char* what, const TensorView& v, std::int64_t vocab) {
  TF_CHECK(v.data != nullptr && v.dtype == DType::kF32 && v.rank > 0 && v.numel() > 0 &&
               v.numel() == vocab && v.is_contiguous(),
           "{}: expected f32 [{}] in memory without gaps, found {} {}{}", what, vocab,
           to_string(v.dtype), shape_text(v.shape, v.rank), v.data == nullptr ? " without it" : "");
}

void expect_tree(const VerifyRequest& r, std::int64_t vocab) {
  const auto n = static_cast<std::int64_t>(r.tokens.size());
  TF_CHECK(n <= kMaxProposals, "verify: {} tokens, at most {}", n, kMaxProposals);
  expect("verify: p", r.p, kF32, {n + 1, vocab});
  if (n > 0) expect("verify: q", r.q, kF32, {n, vocab});
  for (const Token t : r.tokens) {
    TF_CHECK(t >= 0 && t < vocab, "verify: token {}: expected 0 to {}", t, vocab - 1);
  }
  TF_CHECK(r.parents.empty() || r.parents.size() == r.tokens.size(),
           "verify: {} parents of {} tokens", r.parents.size(), n);
  std::int64_t node = 0, least = -1;
  for (const std::int16_t parent : r.parents) {
    TF_CHECK(parent >= least && parent < node, "verify: parent {} of node {}: expected {} to {}",
             parent, node, least, node - 1);
    least = parent;
    ++node;
  }
}

void expect_scores(const TensorView& q, const KvView& kv, int chunk, std::int64_t n_chunks,
                   const TensorView& scores, const Backend::Traits& t) {
  expect_kv("score_chunks", kv, t);
  expect("score_chunks: q", q, activations(t), {q.shape[0], kv.head_dim}, Gaps::kNone);
  expect("score_chunks: scores", scores, kF32, {kv.kv_heads, n_chunks});
  TF_CHECK(q.shape[0] % kv.kv_heads == 0, "score_chunks: {} query heads over {}", q.shape[0],
           kv.kv_heads);
  TF_CHECK(chunk > 0 && n_chunks <= kv.capacity / chunk, "score_chunks: {} chunks of {} rows of {}",
           n_chunks, chunk, kv.capacity);
}

// These are the traits of what HostAttention reads; activations are f32.
constexpr Backend::Traits kHostTraits = {.kv_granule = kHostKeyBlock,
                                         .head_dim_step = 64,
                                         .max_head_dim = 256,
                                         .formats = Backend::Formats::kStored};

void expect_on_host(const char* op, const KvView& kv) {
  TF_CHECK(kv.on_host && kv.format.type != DType::kF32, "{}: rows of {} that are {}on the host", op,
           to_string(kv.format.type), kv.on_host ? "" : "not ");
}

void expect_same_rows(const char* op, const KvView& src, const KvView& dst) {
  TF_CHECK(src.format.type == dst.format.type && src.first_head == dst.first_head &&
               src.kv_heads == dst.kv_heads && src.head_dim == dst.head_dim,
           "{}: {} heads from {} of {} {} to {} heads from {} of {} {}", op, src.kv_heads,
           src.first_head, src.head_dim, to_string(src.format.type), dst.kv_heads, dst.first_head,
           dst.head_dim, to_string(dst.format.type));
}

void expect_transfer(const char* op, const TensorView& dst, const TensorView& src) {
  TF_CHECK(dst.rank == src.rank && dst.rank > 0 && dst.shape == src.shape && dst.is_contiguous() &&
               src.is_contiguous(),
           "{}: {} to {}, expected equal shapes without gaps", op, shape_text(src.shape, src.rank),
           shape_text(dst.shape, dst.rank));
  TF_CHECK(dst.dtype == src.dtype || (dst.dtype != DType::kI32 && src.dtype != DType::kI32),
           "{}: {} to {}", op, to_string(src.dtype), to_string(dst.dtype));
}

void expect_matrix(std::int64_t rows, std::int64_t cols, WeightFormat format, unsigned types) {
  TF_CHECK(rows > 0 && cols > 0 && (bit(format.type) & types) != 0,
           "matrix [{}, {}] of {}, expected {}", rows, cols, to_string(format.type),
           types_text(types));
}

}  // namespace

Matrix Backend::make_matrix(std::int64_t rows, std::int64_t cols, WeightFormat format, MemTag tag) {
  expect_matrix(rows, cols, format, stored(traits_));
  return {Buffer(allocator(), do_matrix_bytes(rows, cols, format), place(), tag),
          format,
          rows,
          cols,
          {}};
}

std::int64_t Backend::matrix_bytes(std::int64_t rows, std::int64_t cols,
                                   WeightFormat format) const {
  expect_matrix(rows, cols, format, kFloats);
  return do_matrix_bytes(rows, cols, format);
}

void Backend::set_rows(Matrix& m, std::int64_t row_begin, TensorView src) {
  expect("set_rows: source", src, kFloats, {src.shape[0], m.cols});
  TF_CHECK(row_begin >= 0 && row_begin + src.shape[0] <= m.rows, "set_rows: rows [{}, {}) of {}",
           row_begin, row_begin + src.shape[0], m.rows);
  do_set_rows(m, row_begin, src);
}

void Backend::upload(TensorView dst, TensorView src) {
  expect_transfer("upload", dst, src);
  if (src.numel() > 0) do_upload(dst, src);
}

void Backend::download(TensorView host_dst, TensorView src) {
  expect_transfer("download", host_dst, src);
  if (src.numel() > 0) do_download(host_dst, src);
}

void Backend::random_values(TensorView out, const DrawKey& key, std::int64_t first, double scale) {
  TF_CHECK(out.data != nullptr && out.dtype == DType::kF32 && out.is_contiguous() && first >= 0 &&
               first + out.numel() <= std::int64_t{1} << 34,
           "random_values: elements [{}, {}) into {}", first, first + out.numel(),
           to_string(out.dtype));
  do_random_values(out, key, first, scale);
}

void Backend::embed(TensorView tokens, const Matrix& table, TensorView out) {
  expect_matrix(table.rows, table.cols, table.format, stored(traits_));
  TF_CHECK(!table.format.is_quantised(), "embed: a table of {}",
           to_string(table.format.quantisation));
  expect("embed: out", out, kF32, {out.shape[0], table.cols});
  expect("embed: tokens", tokens, kI32, {out.shape[0]}, Gaps::kNone);
  if (place() == Place::kHost) expect_ids("embed: token", tokens, table.rows);
  do_embed(tokens, table, out);
}

void Backend::rms_norm(TensorView x, TensorView w, float eps, TensorView out) {
  expect("rms_norm: x", x, kF32, {x.shape[0], x.shape[1]});
  expect("rms_norm: w", w, kF32, {x.shape[1]}, Gaps::kNone);
  expect("rms_norm: out", out, activations(traits_) | kF32, {x.shape[0], x.shape[1]});
  TF_CHECK(out.data != x.data || (out.dtype == x.dtype && out.stride == x.stride),
           "rms_norm: x and out share memory in different ways");
  do_rms_norm(x, w, eps, out);
}

void Backend::head_norm(TensorView x, TensorView w, float eps) {
  expect("head_norm: x", x, activations(traits_), {x.shape[0], x.shape[1], x.shape[2]});
  expect("head_norm: w", w, kF32, {x.shape[1], x.shape[2]}, Gaps::kNone);
  TF_CHECK(x.shape[2] <= traits_.max_head_dim, "head_norm: heads of {}", x.shape[2]);
  do_head_norm(x, w, eps);
}

void Backend::linear(TensorView x, const Matrix& w, TensorView out, bool accumulate, RowPath path) {
  expect("linear: x", x, activations(traits_), {x.shape[0], w.cols});
  expect("linear: out", out, accumulate ? kF32 : activations(traits_) | kF32, {x.shape[0], w.rows});
  expect_apart("linear", x, out);
  if (w.bias) expect("linear: bias", w.bias.view(), kF32, {w.rows}, Gaps::kNone);
  do_linear(x, w, out, accumulate, path);
}

void Backend::rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                          std::span<const KvView> sequences) {
  expect_sequences("rope_append", q, sequences, traits_);
  const KvView& kv = sequences.front();
  const std::int64_t rows = q.shape[0], group = group_of("rope_append", q, kv);
  expect("rope_append: q", q, activations(traits_), {rows, q.shape[1], kv.head_dim});
  expect("rope_append: qkv", qkv, activations(traits_),
         {rows, (group + 2) * kv.layer_heads * kv.head_dim});
  expect("rope_append: positions", positions, kI32, {rows}, Gaps::kNone);
  expect_rope("rope_append: tables", rope, kv);
  expect_apart("rope_append", qkv, q);
  if (place() == Place::kHost) {
    expect_ids("rope_append: position", positions, rope.cos.shape[0]);
  }
  do_rope_append(qkv, positions, rope, q, sequences);
}

void Backend::attention(TensorView q, std::span<const KvView> sequences, const RopeView& rope,
                        TensorView out, std::span<const TensorView> mass, int chunk, RowPath path) {
  expect_attention(q, sequences, rope, out, mass, chunk, path, traits_);
  do_attention(q, sequences, rope, out, mass, chunk, path);
}

void HostAttention::attend(TensorView q, const KvView& kv, TensorView out, TensorView mass,
                           int chunk) {
  expect_on_host("attend", kv);
  expect_attention(q, std::span(&kv, 1), {}, out, std::span(&mass, mass.data != nullptr ? 1 : 0),
                   chunk, RowPath::kInvariant, kHostTraits);
  do_attend(q, kv, out, mass, chunk);
}

void HostAttention::score(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                          TensorView scores, ChunkRule rule) {
  expect_on_host("score", kv);
  expect_scores(q, kv, chunk, n_chunks, scores, kHostTraits);
  do_score(q, kv, chunk, n_chunks, scores, rule);
}

void HostAttention::reserve(Allocator& allocator, const Backend::ScratchShape& shape) {
  release();  // not both at a time
  scratch_ = Buffer(allocator, scratch_bytes(shape), Place::kPinned, MemTag::kStaging);
}

void Backend::swiglu(TensorView gate_up, TensorView out) {
  expect("swiglu: out", out, activations(traits_), {out.shape[0], out.shape[1]});
  expect("swiglu: gate_up", gate_up, bit(out.dtype), {out.shape[0], 2 * out.shape[1]});
  expect_apart("swiglu", gate_up, out);
  do_swiglu(gate_up, out);
}

void Backend::clear(TensorView out) {
  TF_CHECK(out.is_contiguous(), "clear: {} with gaps", shape_text(out.shape, out.rank));
  if (out.numel() > 0) do_clear(out);
}

void Backend::add_parts(TensorView parts, TensorView x) {
  expect("add_parts: x", x, kF32, {x.shape[0], x.shape[1]});
  expect("add_parts: parts", parts, kF32, {parts.shape[0], x.shape[0], x.shape[1]});
  expect_apart("add_parts", parts, x);
  do_add_parts(parts, x);
}

void Backend::to_probs(std::span<const ProbsRequest> requests, const SamplingParams& params) {
  expect_requests("to_probs", requests.size(), kMaxProbsRequests);
  const std::int64_t vocab = requests.front().logits.shape[1];
  for (const ProbsRequest& r : requests) {
    expect("to_probs: logits", r.logits, kF32, {r.logits.shape[0], vocab});
    expect("to_probs: probs", r.probs, kF32, {r.logits.shape[0], vocab});
    expect_apart("to_probs", r.logits, r.probs);
  }
  TF_CHECK((params.temperature == 0 || std::isfinite(1.0F / params.temperature)) &&
               params.temperature >= 0 && params.top_p > 0 && params.top_k >= 0,
           "to_probs: temperature {}, top_p {}, top_k {}", params.temperature, params.top_p,
           params.top_k);
  do_to_probs(requests, params);
}

void Backend::sample(std::span<const SampleRequest> requests, Acceptance acceptance,
                     std::span<Token> out) {
  expect_requests("sample", requests.size(), kMaxSequences);
  std::size_t children = 0;
  for (const SampleRequest& r : requests) {
    const std::int64_t vocab = requests.front().probs.numel();
    expect_distribution("sample: probs", r.probs, vocab);
    if (r.children > 1) expect_distribution("sample: logits", r.logits, vocab);
    TF_CHECK(r.children >= 1 && r.children <= std::min<std::int64_t>(kMaxProposals, vocab),
             "sample: {} children of {} ids, at most {}", r.children, vocab, kMaxProposals);
    TF_CHECK(r.given >= -1 && r.given < vocab, "sample: the first child {} of {} ids", r.given,
             vocab);
    TF_CHECK(r.sibling < kMaxSiblings &&
                 r.sibling + static_cast<std::uint32_t>(r.children) <= kMaxSiblings,
             "sample: {} children from number {} on, below {}", r.children, r.sibling,
             kMaxSiblings);
    children += static_cast<std::size_t>(r.children);
  }
  TF_CHECK(out.size() == children, "sample: {} children into {} tokens", children, out.size());
  do_sample(requests, acceptance, out);
}

void Backend::verify(std::span<const VerifyRequest> requests, const VerifyRule& rule,
                     std::span<VerifyResult> out) {
  expect_requests("verify", requests.size(), kMaxSequences);
  for (const VerifyRequest& r : requests) expect_tree(r, requests.front().p.shape[1]);
  TF_CHECK(out.size() == requests.size(), "verify: {} requests into {} results", requests.size(),
           out.size());
  do_verify(requests, rule, out);
}

void Backend::score_chunks(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                           TensorView scores, ChunkRule rule) {
  expect_scores(q, kv, chunk, n_chunks, scores, traits_);
  do_score_chunks(q, kv, chunk, n_chunks, scores, rule);
}

void Backend::top_chunks(TensorView scores, TensorView ids) {
  expect("top_chunks: scores", scores, kF32, {scores.shape[0], scores.shape[1]});
  expect("top_chunks: ids", ids, kI32, {scores.shape[0], ids.shape[1]});
  TF_CHECK(ids.shape[1] <= scores.shape[1], "top_chunks: {} of {} chunks", ids.shape[1],
           scores.shape[1]);
  do_top_chunks(scores, ids);
}

void Backend::gather_chunks(const KvView& src, TensorView ids, int chunk, const KvView& dst,
                            const ExpandedKeys& expanded) {
  expect_kv("gather_chunks: source", src, traits_);
  expect_kv("gather_chunks: destination", dst, traits_);
  expect_same_rows("gather_chunks", src, dst);
  TF_CHECK(src.k != dst.k, "gather_chunks: source and destination are one cache");
  expect("gather_chunks: ids", ids, kI32, {src.kv_heads, ids.shape[1]});
  TF_CHECK(chunk > 0 && ids.shape[1] <= dst.capacity / chunk,
           "gather_chunks: {} chunks of {} rows into {}", ids.shape[1], chunk, dst.capacity);
  if (place() == Place::kHost) expect_ids("gather_chunks: chunk", ids, src.capacity / chunk);
  TF_CHECK(expanded.first >= 0 && expanded.tokens >= 0, "gather_chunks: chunks from {}, {} tokens",
           expanded.first, expanded.tokens);
  do_gather_chunks(src, ids, chunk, dst, expanded);
}

void Backend::read_keys(const KvView& src, std::int64_t row, std::int64_t count,
                        const RopeView& rope, TensorView out) {
  expect_kv("read_keys", src, traits_);
  TF_CHECK(!src.format.rotate_on_read, "read_keys: keys that lie unrotated");
  TF_CHECK(row >= 0 && row + count <= src.capacity, "read_keys: {} rows from {} of {}", count, row,
           src.capacity);
  if (rope.cos.data != nullptr) {
    expect_rope("read_keys: tables", rope, src);
    TF_CHECK(row + count <= rope.cos.shape[0], "read_keys: tables of {} positions for {} rows",
             rope.cos.shape[0], row + count);
  }
  expect("read_keys: out", out, kF32, {count, std::int64_t{src.kv_heads} * src.head_dim});
  do_read_keys(src, row, count, rope, out);
}

void Backend::mean_keys(const KvView& src, int chunk, std::int64_t first, std::int64_t count,
                        const KvView& dst) {
  expect_kv("mean_keys: source", src, traits_);
  expect_kv("mean_keys: destination", dst, traits_);
  expect_same_rows("mean_keys", src, dst);
  TF_CHECK(!dst.on_host && !src.format.rotate_on_read && src.k != dst.k,
           "mean_keys: means on the host, of unrotated keys, or into their own cache");
  TF_CHECK(chunk > 0 && first >= 0 && count >= 0 && first + count <= src.capacity / chunk &&
               first + count <= dst.capacity,
           "mean_keys: {} chunks of {} rows from {} on, of {} rows into {}", count, chunk, first,
           src.capacity, dst.capacity);
  if (count > 0) do_mean_keys(src, chunk, first, count, dst);
}

void Backend::expand_keys(const LowRankKeys& keys, TensorView ids, int chunk, std::int64_t first,
                          const RopeView& rope, const KvView& dst) {
  expect_kv("expand_keys", dst, traits_);
  TF_CHECK(!dst.on_host && !dst.format.rotate_on_read,
           "expand_keys: keys on the host or unrotated");
  const TensorView &a = keys.coefficients, &basis = keys.basis;
  const std::int64_t rank = a.shape[1];
  expect("expand_keys: coefficients", a, bit(dst.format.type), {a.shape[0], rank}, Gaps::kNone);
  expect("expand_keys: basis", basis, bit(dst.format.type), {dst.kv_heads, rank, dst.head_dim},
         Gaps::kNone);
  TF_CHECK(rank % LowRankKeys::kRankStep == 0, "expand_keys: rank {}: expected a multiple of {}",
           rank, LowRankKeys::kRankStep);
  expect_rope("expand_keys: tables", rope, dst);
  TF_CHECK(a.shape[0] <= rope.cos.shape[0], "expand_keys: tables of {} positions for {} tokens",
           rope.cos.shape[0], a.shape[0]);
  expect("expand_keys: ids", ids, kI32, {dst.kv_heads, ids.shape[1]});
  TF_CHECK(chunk > 0 && first >= 0 && ids.shape[1] <= dst.capacity / chunk,
           "expand_keys: {} chunks of {} rows from {} on into {}", ids.shape[1], chunk, first,
           dst.capacity);
  if (place() == Place::kHost) {
    expect_ids("expand_keys: chunk", ids, std::numeric_limits<std::int32_t>::max());
  }
  if (first < ids.shape[1]) do_expand_keys(keys, ids, chunk, first, rope, dst);
}

void Backend::copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                        std::int64_t dst_row, std::int64_t count, Queue queue) {
  expect_kv("copy_rows: source", src, traits_);
  expect_kv("copy_rows: destination", dst, traits_);
  expect_same_rows("copy_rows", src, dst);
  TF_CHECK(count >= 0 && src_row >= 0 && src_row + count <= src.capacity && dst_row >= 0 &&
               dst_row + count <= dst.capacity,
           "copy_rows: {} rows from {} of {} to {} of {}", count, src_row, src.capacity, dst_row,
           dst.capacity);
  TF_CHECK(src.k != dst.k || dst_row <= src_row, "copy_rows: rows {} to later rows {} of one cache",
           src_row, dst_row);
  TF_CHECK(!src.on_host || !dst.on_host, "copy_rows: both caches are on the host");
  if (count > 0) do_copy_rows(src, src_row, dst, dst_row, count, queue);
}

void Backend::quantise_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                            std::int64_t group, std::int64_t count) {
  expect_kv("quantise_rows: source", src, traits_);
  expect_kv("quantise_rows: destination", dst, traits_);
  expect_same_rows("quantise_rows", src, dst);
  expect_groups("quantise_rows", dst);
  TF_CHECK(count >= 0 && src_row >= 0 && src_row % kKvGroup == 0 &&
               src_row + count * kKvGroup <= src.capacity && group >= 0 &&
               group + count <= dst.older.capacity,
           "quantise_rows: {} groups from row {} of {} to group {} of {}", count, src_row,
           src.capacity, group, dst.older.capacity);
  if (count > 0) do_quantise_rows(src, src_row, dst, group, count);
}

void Backend::keep_rows(std::span<const KvView> caches, std::int64_t first,
                        std::span<const std::int16_t> from) {
  TF_CHECK(first >= 0 && std::ssize(from) <= kMaxTreeRows,
           "keep_rows: {} rows from {} on, at most {}", from.size(), first, kMaxTreeRows);
  std::int64_t last = -1;
  for (const std::int16_t row : from) {
    TF_CHECK(row > last, "keep_rows: row {} after row {}", row, last);
    last = row;
  }
  for (const KvView& kv : caches) {
    expect_kv("keep_rows", kv, traits_);
    expect_same_rows("keep_rows", kv, caches.front());
    TF_CHECK(kv.on_host == caches.front().on_host && first + last < kv.capacity,
             "keep_rows: row {} of {}{}", first + last, kv.capacity,
             kv.on_host == caches.front().on_host ? "" : ", some on the host");
  }
  if (!caches.empty() && !from.empty() && last + 1 != std::ssize(from))
    do_keep_rows(caches, first, from);
}

void Backend::copy(TensorView dst, TensorView src, Queue queue) {
  const bool dense = dst.is_contiguous() && src.is_contiguous() && dst.numel() == src.numel();
  TF_CHECK(dst.dtype == src.dtype &&
               (dense || (src.rank == 2 && dst.rank == 2 && src.shape == dst.shape &&
                          src.stride[1] == 1 && dst.stride[1] == 1)),
           "copy: {} {} to {} {}", to_string(src.dtype), shape_text(src.shape, src.rank),
           to_string(dst.dtype), shape_text(dst.shape, dst.rank));
  if (src.numel() > 0) do_copy(dst, src, queue);
}

Event Backend::record() {
  do_record(next_event_ % kEvents);
  return {next_event_++};
}

std::uint64_t Backend::begin_lease(const ScratchShape& shape) {
  ScratchShape all = leased_;
  all.grow(shape);
  const std::int64_t before = scratch_.bytes();
  const std::int64_t bytes = std::max({scratch_bytes(all), scratch_bytes(shape), before});
  try {
    if (bytes > before) resize_scratch(bytes);
    stage(all);
  } catch (...) {
    if (bytes > before) resize_scratch(before);
    stage(leased_);
    throw;
  }
  leased_ = all;
  ++leases_;
  return next_lease_++;
}

void Backend::end_lease(std::uint64_t id) noexcept {
  do_forget(id);
  if (--leases_ > 0) return;
  leased_ = {};
  resize_scratch(0);
  stage({});
}

void Backend::stage(const ScratchShape& all) {
  const std::int64_t bytes = staging_bytes(all);
  if (bytes == staged_bytes_) return;
  staged_bytes_ = 0;
  do_stage(all);
  staged_bytes_ = bytes;
}

void Backend::resize_scratch(std::int64_t bytes) {
  scratch_ = Buffer();  // not both at a time
  do_scratch_moved();
  if (bytes == 0) return;
  scratch_ = Buffer(allocator(), bytes, place(), MemTag::kWorkspace);
  do_scratch_moved();
}

double Backend::elapsed_ms(Event a, Event b) { return do_elapsed_ms(slot_of(a), slot_of(b)); }

std::size_t Backend::slot_of(Event e) const {
  TF_CHECK(e.id < next_event_ && next_event_ - e.id <= kEvents,
           "event {} of {}, the newest {} kept", e.id, next_event_, kEvents);
  return e.id % kEvents;
}

}  // namespace triforce
