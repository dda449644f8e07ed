// Tests: tests/model/low_rank_prompt_test.cpp
#include "model/low_rank_prompt.h"

#define EIGEN_DONT_PARALLELIZE  // sums shall not depend on the number of threads
#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "core/rounding.h"
#include "triforce/error.h"

namespace triforce {
namespace {

using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MappedRows = Eigen::Map<const Rows>;

// part(first, n) of each 64 of `count`, by one thread each, so that a sum has one order. Throws
// what a part has thrown.
template <class Part>
void each_part(Eigen::Index count, const Part& part) {
  constexpr Eigen::Index kAtOnce = 64;
  const Eigen::Index parts = ceil_div(count, kAtOnce);
  std::exception_ptr thrown;
#pragma omp parallel for schedule(dynamic)
  for (Eigen::Index i = 0; i < parts; ++i) {
    try {
      part(i * kAtOnce, std::min(kAtOnce, count - i * kAtOnce));
    } catch (...) {
#pragma omp critical
      thrown = std::current_exception();
    }
  }
  if (thrown) std::rethrow_exception(thrown);
}

// gram += keys^T keys, its lower triangle alone.
void add_products(const MappedRows& keys, Eigen::MatrixXd& gram) {
  const Eigen::Index width = keys.cols();
  each_part(width, [&](Eigen::Index first, Eigen::Index n) {
    gram.block(first, first, width - first, n) +=
        (keys.rightCols(width - first).transpose() * keys.middleCols(first, n)).cast<double>();
  });
}

// [rows, rank]
Rows product_of(const MappedRows& keys, const Eigen::MatrixXf& directions) {
  Rows product(keys.rows(), directions.cols());
  each_part(keys.rows(), [&](Eigen::Index first, Eigen::Index n) {
    product.middleRows(first, n).noalias() = keys.middleRows(first, n) * directions;
  });
  return product;
}

// The directions [width, rank] of the most of sum x x^T = gram, of which the lower triangle is
// given, the greatest first.
Eigen::MatrixXf greatest_directions(const Eigen::MatrixXd& gram, int rank) {
  if (!gram.allFinite()) throw_numeric("--key-rank: keys of the prompt are not finite");
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(gram);
  if (solver.info() != Eigen::Success) {
    throw_numeric("--key-rank: no eigenvalues found of {} dimensions of keys", gram.rows());
  }
  return solver.eigenvectors().rowwise().reverse().leftCols(rank).cast<float>();
}

// The least cosine of a key of the chunk with the mean of its keys.
double least_cosine(const Eigen::Ref<const Rows, 0, Eigen::OuterStride<>>& keys) {
  const Eigen::RowVectorXf mean = keys.colwise().mean();
  double least = 1;
  for (Eigen::Index r = 0; r < keys.rows(); ++r) {
    const double lengths =
        static_cast<double>(mean.norm()) * static_cast<double>(keys.row(r).norm());
    least = std::min(least, static_cast<double>(mean.dot(keys.row(r))) / std::max(lengths, 1e-30));
  }
  return least;
}

}  // namespace

std::int64_t LowRankPrompt::Shape::block_rows() const {
  constexpr std::int64_t kRows = 512;
  return std::max<std::int64_t>(1, kRows / chunk_size) * chunk_size;
}

std::int64_t LowRankPrompt::Shape::key_bytes() const {
  return (layers - first_layer) * (capacity + width()) * rank * size_of(type);
}

std::int64_t LowRankPrompt::Shape::workspace_bytes() const {
  return ((layers - first_layer) * kv_heads * std::max<std::int64_t>(1, chunks()) +
          block_rows() * width()) *
         size_of(DType::kF32);
}

int LowRankPrompt::rank_of(int asked, int kv_heads, int head_dim) {
  constexpr int kStep = LowRankKeys::kRankStep;
  return std::min(asked, kv_heads * head_dim / kStep * kStep);
}

LowRankPrompt::LowRankPrompt(Backend& backend, const Shape& shape) : b_(backend), shape_(shape) {
  const std::int64_t layers = shape.layers - shape.first_layer;
  TF_CHECK(shape.rank > 0 && shape.rank % LowRankKeys::kRankStep == 0, "keys of rank {}",
           shape.rank);
  const auto make = [&](DType t, std::initializer_list<std::int64_t> dims, MemTag tag) {
    return Tensor(b_.allocator(), t, dims, b_.place(), tag);
  };
  coefficients_ = make(shape.type, {layers, shape.capacity, shape.rank}, MemTag::kKvRetrieval);
  basis_ =
      make(shape.type, {layers, shape.kv_heads, shape.rank, shape.head_dim}, MemTag::kKvRetrieval);
  favours_ = make(DType::kF32, {layers, shape.kv_heads, std::max<std::int64_t>(1, shape.chunks())},
                  MemTag::kWorkspace);
  block_ = make(DType::kF32, {shape.block_rows(), shape.width()}, MemTag::kWorkspace);
  host_block_.resize(static_cast<std::size_t>(shape.block_rows() * shape.width()));
}

const float* LowRankPrompt::keys_of(const RowSource& rows, std::int64_t from, std::int64_t n,
                                    const RopeView& rope) {
  const TensorView block = block_.view().rows(0, n);
  rows.read_keys(from, rope, block);
  b_.download(make_view(host_block_.data(), DType::kF32, {n, shape_.width()}), block);
  return host_block_.data();
}

bool LowRankPrompt::read_layer(const RowSource& rows, int index, const RopeView& rope,
                               const std::function<bool(int done)>& go_on) {
  const std::int64_t width = shape_.width(), rank = shape_.rank, d = shape_.head_dim;
  const auto each_block = [&](const auto& use) {
    for (std::int64_t from = 0; from < tokens_; from += shape_.block_rows()) {
      if (!go_on(index)) return false;
      const std::int64_t n = std::min(shape_.block_rows(), tokens_ - from);
      use(from, n, MappedRows(keys_of(rows, from, n, rope), n, width));
    }
    return true;
  };
  Eigen::MatrixXd gram = Eigen::MatrixXd::Zero(width, width);
  const bool summed = each_block([&](std::int64_t /*from*/, std::int64_t /*n*/,
                                     const MappedRows& keys) { add_products(keys, gram); });
  if (!summed) return false;
  const Eigen::MatrixXf directions = greatest_directions(gram, shape_.rank);  // [width, rank]

  // [Hkv, rank, d]
  std::vector<float> host(static_cast<std::size_t>(width * rank));
  for (int h = 0; h < shape_.kv_heads; ++h) {
    Eigen::Map<Rows>(host.data() + h * rank * d, rank, d) =
        directions.middleRows(h * d, d).transpose();
  }
  const auto of_layer = [&](const Tensor& t, std::initializer_list<std::int64_t> shape) {
    return make_view(t.view().rows(index, 1).data, t.view().dtype, shape);
  };
  b_.upload(of_layer(basis_, {shape_.kv_heads, rank, d}),
            make_view(host.data(), DType::kF32, {shape_.kv_heads, rank, d}));
  const TensorView coefficients = of_layer(coefficients_, {shape_.capacity, rank});
  return each_block([&](std::int64_t from, std::int64_t n, const MappedRows& keys) {
    Rows product = product_of(keys, directions);
    b_.upload(coefficients.rows(from, n), make_view(product.data(), DType::kF32, {n, rank}));
  });
}

void LowRankPrompt::choose_exact(const RowSource& rows, int index) {
  const std::int64_t d = shape_.head_dim, chunk = shape_.chunk_size, chunks = tokens_ / chunk;
  const std::int64_t all = favours_.view().shape[2];
  const std::int64_t local = std::max<std::int64_t>(1, chunks - kLocalChunks);
  std::vector<std::vector<double>> cosines(static_cast<std::size_t>(shape_.kv_heads));
  for (std::int64_t from = 0; shape_.outlier_chunks > 0 && from < chunks * chunk;
       from += shape_.block_rows()) {
    const std::int64_t n = std::min(shape_.block_rows(), chunks * chunk - from);
    const MappedRows keys(keys_of(rows, from, n, {}), n, shape_.width());
    for (int h = 0; h < shape_.kv_heads; ++h) {
      for (std::int64_t r = 0; r < n; r += chunk) {
        cosines[static_cast<std::size_t>(h)].push_back(
            least_cosine(keys.block(r, h * d, chunk, d)));
      }
    }
  }
  std::vector<float> favours(static_cast<std::size_t>(shape_.kv_heads * all));
  std::int64_t outliers = 0;
  for (int h = 0; h < shape_.kv_heads; ++h) {
    const std::vector<double>& of_head = cosines[static_cast<std::size_t>(h)];
    float* const favour = favours.data() + h * all;
    std::fill(favour + std::min(local, chunks), favour + chunks,
              std::numeric_limits<float>::infinity());
    std::vector<std::int64_t> order;
    for (std::int64_t c = 1; shape_.outlier_chunks > 0 && c < local; ++c) order.push_back(c);
    outliers = std::min<std::int64_t>(shape_.outlier_chunks, std::ssize(order));
    std::partial_sort(order.begin(), order.begin() + outliers, order.end(),
                      [&](std::int64_t a, std::int64_t b) {
                        const double x = of_head[static_cast<std::size_t>(a)],
                                     y = of_head[static_cast<std::size_t>(b)];
                        return x != y ? x < y : a < b;
                      });
    for (std::int64_t i = 0; i < outliers; ++i) {
      favour[order[static_cast<std::size_t>(i)]] = std::numeric_limits<float>::infinity();
    }
  }
  exact_ = 1 + outliers + std::max<std::int64_t>(0, chunks - local);
  b_.upload(make_view(favours_.view().rows(index, 1).data, DType::kF32, {shape_.kv_heads, all}),
            make_view(favours.data(), DType::kF32, {shape_.kv_heads, all}));
}

bool LowRankPrompt::read(const FullCache& full, std::int64_t tokens, const RopeView& rope,
                         const std::function<bool(int done)>& go_on) {
  TF_CHECK(tokens >= 0 && tokens <= shape_.capacity, "{} of {} tokens", tokens, shape_.capacity);
  clear();
  tokens_ = tokens;
  rope_ = rope;
  for (int l = shape_.first_layer; tokens > 0 && l < shape_.layers; ++l) {
    const RowSource rows = full.layer(l);
    const int index = l - shape_.first_layer;
    const bool done = read_layer(rows, index, rope, go_on);
    if (done) choose_exact(rows, index);
    if (!done || !go_on(index + 1)) {
      clear();
      return false;
    }
  }
  return true;
}

void LowRankPrompt::favour(int layer, const HeadRange& heads, TensorView scores) const {
  if (tokens_ == 0) return;
  const TensorView mine =
      favours_.view().rows(layer - shape_.first_layer, 1).slice(1, heads.first, heads.count);
  b_.add_parts(mine, scores);
}

void LowRankPrompt::expand(int layer, const HeadRange& heads, TensorView ids,
                           const KvView& dst) const {
  if (tokens_ == 0) return;
  const int index = layer - shape_.first_layer;
  const std::int64_t rank = shape_.rank;
  const TensorView a =
      make_view(coefficients_.view().rows(index, 1).data, shape_.type, {shape_.capacity, rank});
  const TensorView basis = make_view(basis_.view().rows(index, 1).data, shape_.type,
                                     {shape_.kv_heads, rank, shape_.head_dim});
  b_.expand_keys({a.rows(0, tokens_), basis.rows(heads.first, heads.count)},
                 ids.rows(heads.first, heads.count), shape_.chunk_size, exact_, rope_,
                 dst.heads(heads.first, heads.count));
}

}  // namespace triforce
