#include "cpu/gemm.h"

#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>

#include "cpu/team.h"

namespace triforce::cpu {
namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

// oneDNN 2 and 3 are the same library to this file but for two names. Every attribute that decides
// how exactly a product is computed is set in build(), so that neither has a default of its own.
#if DNNL_VERSION_MAJOR >= 3
constexpr dnnl::cpu_isa kEveryIsa = dnnl::cpu_isa::isa_default;
#else
constexpr dnnl::cpu_isa kEveryIsa = dnnl::cpu_isa::all;
#endif

// Empty where oneDNN has nothing for these arguments.
dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const dnnl::memory::desc& x,
                                      const dnnl::memory::desc& w, const dnnl::memory::desc& out,
                                      const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, x, w, out, attributes, /*allow_empty=*/true};
#else
  return {dnnl::matmul::desc(x, w, out), attributes, engine, /*allow_empty=*/true};
#endif
}

// More distinct shapes than this (every prompt has its own last chunk) start the cache afresh.
constexpr std::size_t kMaxPrimitives = 512;

struct Entry {
  bool supported = false;
  dnnl::matmul primitive;
  std::unordered_map<int, dnnl::memory> arguments;
};

// oneDNN reads the weights in the layout of our own linear layers, so prefill needs no second copy
// of them.
dnnl::memory::desc weight_desc(const Gemm::Shape& s) {
  switch (s.weights) {
    case Gemm::Weights::kPanelsBf16:
      return {{s.k, s.n}, Type::bf16, Tag::BA16a64b2a};
    case Gemm::Weights::kPanelsF32:
      return {{s.k, s.n}, Type::f32, Tag::BA16a64b};
    case Gemm::Weights::kPlainF32:
      break;
  }
  return {{s.k, s.n}, Type::f32, dnnl::memory::dims{s.ldb, 1}};
}

// Returns what `call` returns. Memory that oneDNN cannot get is no fault of this program.
template <class Call>
auto call_onednn(const Call& call) {
  try {
    return call();
  } catch (const dnnl::error& e) {
    const bool memory = e.status == dnnl_out_of_memory;
    throw Error(memory ? ExitCode::kResources : ExitCode::kInternal,
                memory ? "OutOfMemory" : "Internal",
                fmt::format("oneDNN: {} (status {})", e.what(), static_cast<int>(e.status)));
  }
}

Entry build(const dnnl::engine& engine, const Gemm::Shape& s) {
  const Type x_type = s.weights == Gemm::Weights::kPanelsBf16 ? Type::bf16 : Type::f32;
  const dnnl::memory::desc x({s.m, s.k}, x_type, dnnl::memory::dims{s.lda, 1});
  const dnnl::memory::desc w = weight_desc(s);
  const dnnl::memory::desc out({s.m, s.n}, Type::f32, dnnl::memory::dims{s.ldc, 1});
  dnnl::primitive_attr attributes;
  // Else ONEDNN_DEFAULT_FPMATH_MODE could round f32 operands to bf16.
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
#if DNNL_VERSION_MAJOR > 3 || (DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR >= 4)
  attributes.set_accumulation_mode(dnnl::accumulation_mode::strict);  // sums are f32, as before 3.4
#endif
  if (s.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc pd = describe(engine, x, w, out, attributes);
  Entry entry;
  if (pd.get(true) == nullptr) return entry;
  entry.supported = std::string_view(pd.impl_info_str()).substr(0, 3) != "ref";
  if (!entry.supported) return entry;
  entry.primitive = dnnl::matmul(pd);
  entry.arguments = {{DNNL_ARG_SRC, {x, engine, DNNL_MEMORY_NONE}},
                     {DNNL_ARG_WEIGHTS, {w, engine, DNNL_MEMORY_NONE}},
                     {DNNL_ARG_DST, {out, engine, DNNL_MEMORY_NONE}}};
  return entry;
}

}  // namespace

void limit_gemm_isa(Isa isa) {
  const dnnl::cpu_isa cap = isa == Isa::kAmx          ? kEveryIsa
                            : isa == Isa::kAvx512Bf16 ? dnnl::cpu_isa::avx512_core_bf16
                            : isa == Isa::kAvx512     ? dnnl::cpu_isa::avx512_core
                            : isa == Isa::kAvx2       ? dnnl::cpu_isa::avx2
                                                      : dnnl::cpu_isa::sse41;
  static_cast<void>(dnnl::set_max_cpu_isa(cap));
}

struct Gemm::Cache {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Shape, Entry> entries;

  Entry& get(const Workers& workers, const Shape& shape) {
    // oneDNN divides a product among the threads of the calling thread's OpenMP default, and leaves
    // out what falls to those that its region does not have.
    expect_team(workers.threads);
    TF_CHECK(shape.n > 1, "matmul {}x{}x{}", shape.m, shape.k, shape.n);
    const auto found = entries.find(shape);
    if (found != entries.end()) return found->second;
    if (entries.size() >= kMaxPrimitives) entries.clear();
    Entry entry = call_onednn([&] { return build(engine, shape); });
    return entries.emplace(shape, std::move(entry)).first->second;
  }
};

Gemm::Gemm() : cache_(call_onednn([] { return std::make_unique<Cache>(); })) {}
Gemm::~Gemm() = default;

bool Gemm::supports(const Workers& workers, const Shape& shape) {
  return cache_->get(workers, shape).supported;
}

void Gemm::run(const Workers& workers, const Shape& shape, const void* x, const void* w,
               float* out) {
  Entry& entry = cache_->get(workers, shape);
  TF_CHECK(entry.supported, "matmul {}x{}x{}", shape.m, shape.k, shape.n);
  call_onednn([&] {
    // oneDNN reads through these pointers; its interface has no const.
    entry.arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<void*>(x));
    entry.arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(const_cast<void*>(w));
    entry.arguments.at(DNNL_ARG_DST).set_data_handle(out);
    entry.primitive.execute(cache_->stream, entry.arguments);
    cache_->stream.wait();
  });
}

}  // namespace triforce::cpu
