#include "cpu/linear.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cmath>

#include "core/elements.h"
#include "core/float16.h"
#include "cpu/cpu_test_support.h"

namespace triforce::cpu {
namespace {

constexpr std::int64_t kScratchBytes = 16 << 20;

struct Case {
  Isa isa;
  DType dtype;
};

class LinearTest : public testing::TestWithParam<Case> {
 protected:
  LinearTest() : env_(GetParam().isa, 2, kScratchBytes) { limit_gemm_isa(GetParam().isa); }

  // A matrix of GetParam().dtype from f32 values [rows, cols].
  Matrix matrix(std::int64_t rows, std::int64_t cols, std::vector<float>& values) {
    const DType dtype = GetParam().dtype;
    Matrix m{
        Buffer(env_.allocator(), packed_bytes(rows, cols, dtype), Place::kHost, MemTag::kWorkspace),
        dtype, rows, cols};
    pack_rows(env_.get(), m, 0, make_view(values.data(), DType::kF32, {rows, cols}));
    return m;
  }

  // The value a stored weight, or an input of a bf16 product, has.
  float stored(float x) const {
    switch (GetParam().dtype) {
      case DType::kBF16:
        return bf16_to_f32(f32_to_bf16(x));
      case DType::kF16:
        return f16_to_f32(f32_to_f16(x));
      default:
        return x;
    }
  }
  float input(float x) const { return GetParam().dtype == DType::kBF16 ? stored(x) : x; }

  TestContext env_;
  Gemm gemm_;
};

TEST_P(LinearTest, BitsOfARowDependOnNeitherRowsNorThreads) {
  const std::int64_t n = 139, k = 530;  // several tiles, several blocks of k
  std::vector<float> w = normal_values(n * k, 5, 0.1F);
  const Matrix m = matrix(n, k, w);
  constexpr std::int64_t kMost = 128;
  std::vector<float> x = normal_values(kMost * k, 6);
  std::vector<float> alone(static_cast<std::size_t>(kMost * n));
  for (std::int64_t r = 0; r < kMost; ++r) {
    linear(env_.get(), gemm_, make_view(x.data() + r * k, DType::kF32, {1, k}), m,
           make_view(alone.data() + r * n, DType::kF32, {1, n}), false, RowPath::kInvariant);
  }
  for (const int threads : {1, 2, 3}) {
    env_.get().threads = threads;
    for (std::int64_t rows = 1; rows <= kMost; rows += rows < 34 ? 1 : 31) {
      std::vector<float> out(static_cast<std::size_t>(rows * n));
      linear(env_.get(), gemm_, make_view(x.data(), DType::kF32, {rows, k}), m,
             make_view(out.data(), DType::kF32, {rows, n}), false, RowPath::kInvariant);
      ASSERT_EQ(std::memcmp(out.data(), alone.data(), out.size() * sizeof(float)), 0)
          << rows << " rows, " << threads << " threads";
    }
  }
}

TEST_P(LinearTest, RowsSetInPiecesEqualRowsSetAtOnce) {
  const std::int64_t n = 150, k = 45;
  std::vector<float> w = normal_values(n * k, 7);
  const Matrix whole = matrix(n, k, w);
  for (const DType from : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<std::byte> source(static_cast<std::size_t>(n * k * size_of(from)));
    convert(source.data(), from, w.data(), DType::kF32, n * k);
    std::vector<float> rounded(static_cast<std::size_t>(n * k));
    convert(rounded.data(), DType::kF32, source.data(), from, n * k);
    const Matrix expected = matrix(n, k, rounded);
    std::vector<float> zero(static_cast<std::size_t>(n * k));
    Matrix pieces = matrix(n, k, zero);
    const TensorView all = make_view(source.data(), from, {n, k});
    const std::int64_t cuts[] = {0, 1, 63, 64, 100, n};
    for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
      pack_rows(env_.get(), pieces, cuts[i], all.rows(cuts[i], cuts[i + 1] - cuts[i]));
    }
    ASSERT_EQ(std::memcmp(pieces.storage.data(), expected.storage.data(),
                          static_cast<std::size_t>(expected.storage.bytes())),
              0)
        << "from " << to_string(from);
  }
  EXPECT_EQ(whole.storage.bytes(), packed_bytes(n, k, GetParam().dtype));
}

// Both paths compute the same thing: with the exact one as the standard, the other stays within
// the rounding of two sums. Neither writes between the rows of an output; of one column, alone or
// behind whole blocks, oneDNN 3.7 would.
TEST_P(LinearTest, PrefillAgreesWithTheExactPath) {
  constexpr std::int64_t k = 300, rows = 64, kGap = 3;
  for (const std::int64_t n : {1, 100, 257}) {
    SCOPED_TRACE(n);
    const std::int64_t stride = n + kGap;
    std::vector<float> w = normal_values(n * k, 8, 0.05F);
    const Matrix m = matrix(n, k, w);
    std::vector<float> x = normal_values(rows * k, 9);
    std::vector<float> many(static_cast<std::size_t>(rows * stride), 7.0F), few(many);
    const auto product = [&](std::int64_t first, std::int64_t count, std::vector<float>& out) {
      TensorView to = make_view(out.data() + first * stride, DType::kF32, {count, n});
      to.stride[0] = stride;
      linear(env_.get(), gemm_, make_view(x.data() + first * k, DType::kF32, {count, k}), m, to,
             false, throughput_path(count));
    };
    product(0, rows, many);
    for (std::int64_t r = 0; r < rows; r += kMaxBatchInvariantRows) {
      product(r, kMaxBatchInvariantRows, few);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < stride; ++c) {
        const auto i = static_cast<std::size_t>(r * stride + c);
        if (c >= n) {
          ASSERT_EQ(many[i], 7.0F) << r << ' ' << c;
          ASSERT_EQ(few[i], 7.0F) << r << ' ' << c;
          continue;
        }
        double norm = 0;
        for (std::int64_t j = 0; j < k; ++j) {
          norm += std::abs(static_cast<double>(input(x[static_cast<std::size_t>(r * k + j)])) *
                           static_cast<double>(stored(w[static_cast<std::size_t>(c * k + j)])));
        }
        ASSERT_NEAR(many[i], few[i], 2.0 * static_cast<double>(k + 1) * 0x1.0p-23 * norm);
      }
    }
  }
}

// Counts how often pages of a range are read anew: only the newest kWindow of them can be read, and
// another one is let in by the fault that reading it is. One at a time; of one thread's reads.
class PageReads {
 public:
  PageReads(const void* begin, std::int64_t bytes) {
    const auto first = reinterpret_cast<std::uintptr_t>(begin);
    page_ = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    begin_ = (first + page_ - 1) / page_ * page_;
    end_ = (first + static_cast<std::uintptr_t>(bytes)) / page_ * page_;
    reads_ = 0;
    window_.fill(0);
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      let_in(reinterpret_cast<std::uintptr_t>(info->si_addr));
    };
    sigaction(SIGSEGV, &action, &before_);
    protect(begin_, end_ - begin_, PROT_NONE);
  }
  PageReads(const PageReads&) = delete;
  PageReads& operator=(const PageReads&) = delete;
  ~PageReads() {
    protect(begin_, end_ - begin_, PROT_READ | PROT_WRITE);
    sigaction(SIGSEGV, &before_, nullptr);
  }
  std::int64_t pages() const { return static_cast<std::int64_t>((end_ - begin_) / page_); }
  std::int64_t reads() const { return reads_; }

 private:
  // What a kernel reads again and again, at most: a block of a panel (linear_kernels.h).
  static constexpr std::size_t kWindow = 10;

  static void protect(std::uintptr_t at, std::uintptr_t bytes, int access) {
    if (mprotect(reinterpret_cast<void*>(at), bytes, access) != 0) _exit(3);
  }
  static void let_in(std::uintptr_t address) {
    if (address < begin_ || address >= end_) _exit(3);  // not a page that is watched
    std::uintptr_t& oldest = window_[static_cast<std::size_t>(reads_++) % kWindow];
    if (oldest != 0) protect(oldest, page_, PROT_NONE);
    oldest = address / page_ * page_;
    protect(oldest, page_, PROT_READ);
  }

  static inline std::uintptr_t begin_, end_, page_;
  static inline std::int64_t reads_;
  static inline std::array<std::uintptr_t, kWindow> window_;
  struct sigaction before_ {};
};

TEST_P(LinearTest, WeightsAreReadOnceFor128Rows) {
  const std::int64_t n = 192, k = 2100, rows = 128;
  std::vector<float> w = normal_values(n * k, 11, 0.1F), x = normal_values(rows * k, 12);
  const Matrix m = matrix(n, k, w);
  std::vector<float> out(static_cast<std::size_t>(rows * n));
  TestContext one(GetParam().isa, 1, kScratchBytes);
  const auto reads = [&](std::int64_t count) {
    const TensorView in = make_view(x.data(), DType::kF32, {count, k}),
                     to = make_view(out.data(), DType::kF32, {count, n});
    const PageReads watched(m.storage.data(), m.storage.bytes());
    linear(one.get(), gemm_, in, m, to, false, RowPath::kInvariant);
    EXPECT_GT(watched.pages(), 100);
    return static_cast<double>(watched.reads()) / static_cast<double>(watched.pages());
  };
  EXPECT_EQ(reads(33), 1.0);
  EXPECT_EQ(reads(rows), 1.0);
  // What the count would be of a kernel that reads them again.
  const PageReads watched(m.storage.data(), m.storage.bytes());
  for (int pass = 0; pass < 2; ++pass) {
    linear(one.get(), gemm_, make_view(x.data(), DType::kF32, {33, k}), m,
           make_view(out.data(), DType::kF32, {33, n}), false, RowPath::kInvariant);
  }
  EXPECT_EQ(watched.reads(), 2 * watched.pages());
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Isa isa : levels()) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) all.push_back({isa, dtype});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Levels, LinearTest, testing::ValuesIn(cases()), [](const auto& test) {
  return test_name(test.param.isa) + "_" + to_string(test.param.dtype);
});

}  // namespace
}  // namespace triforce::cpu
