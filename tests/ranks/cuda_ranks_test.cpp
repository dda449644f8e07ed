// Ranks with an emulated device each, their data by NCCL or through pinned memory.
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "comm/host_communicator.h"
#include "comm/ranks.h"
#include "cuda/cuda_backend.h"
#include "cuda/host_wait.h"
#include "cuda/nccl.h"
#include "decode/toy_models.h"
#include "host/devices.h"
#include "model/full_cache.h"
#include "tf_emulator.h"
#include "triforce/model.h"

namespace triforce {
namespace {

using testing::as_text;
using testing::RankEnd;
using testing::run_ranks;

constexpr std::int64_t kVocab = 61;

// Parameter: whether by NCCL.
class CudaRanks : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    tf_emulator::Limits limits;
    limits.devices = 2;
    tf_emulator::set_limits(limits);
  }
  void TearDown() override { tf_emulator::reset(); }
};

// As small as the kernels' head dimensions allow, of sizes that divide nothing.
ModelConfig config(Architecture architecture = Architecture::kLlama) {
  ModelConfig c = toy_config("toy-target", 2, 4, 2, 64, kVocab);
  c.architecture = architecture;
  c.hidden = 40;
  c.intermediate = 57;
  return c;
}

// A rank's device and what connects it.
struct Device {
  Device(RankLinks& links, bool nccl)
      : backend(make_cuda_backend({.device = links.shard().rank, .dtype = DType::kBF16})),
        before(backend->allocator().ledger(MemTag::kStaging).live_bytes) {
    if (nccl) {
      ranks = connect_devices(*backend, links);
    } else {
      ranks = std::make_unique<HostCommunicator>(*backend, links);
    }
  }
  std::unique_ptr<Backend> backend;
  std::int64_t before;  // bytes of staging
  std::unique_ptr<Communicator> ranks;
};

void expect_all_return(const std::vector<RankEnd>& ends, const std::string& value) {
  for (const RankEnd& end : ends) {
    EXPECT_TRUE(end.returned) << end.what;
    EXPECT_EQ(end.value, value);
  }
}

// More than is staged at once, by an odd number of elements.
TEST_P(CudaRanks, TensorsAreGathered) {
  const bool nccl = GetParam();
  const auto ends = run_ranks(2, [nccl](RankLinks& links) -> std::string {
    Device d(links, nccl);
    EXPECT_EQ(d.ranks->description(), nccl ? "NCCL 2.14.0" : "sockets, through host memory");
    const std::int64_t n = 2 * (std::int64_t{1} << 18) + 77;
    const auto value = [&](int rank, std::int64_t i) {
      return static_cast<float>(i % 4099) + 0.5F * static_cast<float>(rank);
    };
    const Tensor parts(d.backend->allocator(), DType::kF32, {2, n}, Place::kDevice,
                       MemTag::kActivations);
    std::vector<float> host(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) {
      host[static_cast<std::size_t>(i)] = value(links.shard().rank, i);
    }
    const TensorView view = make_view(host.data(), DType::kF32, {1, n});
    d.backend->upload(parts.view().rows(links.shard().rank, 1), view);
    d.ranks->all_gather(parts.view());
    for (int rank = 0; rank < 2; ++rank) {
      d.backend->download(view, parts.view().rows(rank, 1));
      for (std::int64_t i = 0; i < n; ++i) {
        if (host[static_cast<std::size_t>(i)] != value(rank, i)) {
          return fmt::format("element {} of rank {}", i, rank);
        }
      }
    }
    links.meet();
    const std::int64_t held = d.backend->allocator().ledger(MemTag::kStaging).live_bytes - d.before;
    return held == d.ranks->own_bytes() && (held > 0) != nccl ? "equal"
                                                              : fmt::format("{} bytes", held);
  });
  expect_all_return(ends, "equal");
}

TEST_P(CudaRanks, ARowsBitsDependOnNoOtherRowAndAllRanksHaveThem) {
  const auto ends = run_ranks(2, [nccl = GetParam()](RankLinks& links) {
    Device d(links, nccl);
    const ModelWeights w = random_weights(*d.backend, config(), DType::kBF16, 3,
                                          MemTag::kTargetWeights, {}, links.shard());
    LlamaModel model(*d.backend, w, 128, 64, 32, d.ranks.get());
    FullCache cache(*d.backend, w.config.layers, w.shape().kv_heads, w.config.head_dim, 128, 64,
                    w.dtype);
    const std::vector<Token> tokens = toy_prompt(kMaxBatchInvariantRows, kVocab, 2);
    const auto logits = [&](std::size_t step) {
      cache.reset();
      model.forward(toy_prompt(40, kVocab, 1), cache, Logits::kNone, nullptr, RowPath::kThroughput);
      std::vector<float> all;
      for (std::size_t at = 0; at < tokens.size(); at += step) {
        const std::size_t n = std::min(step, tokens.size() - at);
        const TensorView part =
            model.forward(std::span(tokens).subspan(at, n), cache, Logits::kAll);
        std::vector<float> host(static_cast<std::size_t>(part.numel()));
        d.backend->download(make_view(host.data(), DType::kF32, {part.shape[0], part.shape[1]}),
                            part);
        all.insert(all.end(), host.begin(), host.end());
      }
      return as_text(all);
    };
    const std::string single = logits(1);
    for (const std::size_t rows : {2U, 7U, 9U, 31U, 32U}) EXPECT_EQ(logits(rows), single) << rows;
    links.meet();
    return single;
  });
  EXPECT_EQ(ends[0].value.size(), kMaxBatchInvariantRows * kVocab * sizeof(float));
  expect_all_return(ends, ends[0].value);
}

TEST_P(CudaRanks, StreamsOfAllMethodsEqualTheBaseline) {
  const auto ends = run_ranks(2, [nccl = GetParam()](RankLinks& links) {
    Device d(links, nccl);
    const Architecture architecture = nccl ? Architecture::kQwen2 : Architecture::kQwen3;
    const ToyPair pair(*d.backend, DType::kBF16, config(architecture),
                       toy_config("toy-draft", 1, 1, 1, 64, kVocab), links.shard());
    SpeculationOptions o = toy_options();
    o.acceptance = Acceptance::kCoupled;
    o.gamma = 3;
    o.rebuild = {RebuildPolicy::Kind::kEvery, 4, 0};
    ToyRun run(*d.backend, pair, o, {130, 8, all_methods()}, d.ranks.get());
    run.prefill(toy_prompt(130, kVocab, 1));
    // All ranks record the same passes at the same time, before the rounds that have them.
    run.generate(kBaselineMethod, 0, 3, 0);
    for (const Method m : all_methods()) run.generate(m, 0, 3, 0);
    const std::size_t recorded = d.backend->recorded_passes();
    const Streams streams = run_all(run, 8, 3, 0);
    expect_equal_streams(streams, "two devices");
    EXPECT_EQ(d.backend->recorded_passes(), recorded);
    // Those of the drafter, which is not split, have one row to three.
    if (nccl) {
      EXPECT_GT(recorded, 3U);
    } else {
      EXPECT_EQ(recorded, 3U);
    }
    links.meet();  // no device waits for another rank's now
    return as_text(streams.of(kBaselineMethod).tokens);
  });
  EXPECT_EQ(ends[0].value.size(), 8 * sizeof(Token));
  expect_all_return(ends, ends[0].value);
}

INSTANTIATE_TEST_SUITE_P(Ways, CudaRanks, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "Nccl" : "Host"; });

using NcclRanks = CudaRanks;

// What rank 0 is told when rank 1 does `instead` of the operation for which it waits on its device,
// by itself and in a recorded pass.
std::vector<RankEnd> ends_without(const std::function<void()>& instead, int operations,
                                  std::chrono::milliseconds timeout) {
  return run_ranks(
      2,
      [&](RankLinks& links) -> std::string {
        Device d(links, true);
        const Tensor parts(d.backend->allocator(), DType::kF32, {2, 8}, Place::kDevice,
                           MemTag::kActivations);
        std::array<float, 16> zeros{};
        d.backend->upload(parts.view(), make_view(zeros.data(), DType::kF32, {2, 8}));
        for (int i = 0; i < operations; ++i) {
          if (i == operations - 1 && links.shard().rank == 1) instead();
          d.backend->replay({1, 1, 1}, [&] { d.ranks->all_gather(parts.view()); });
          d.backend->synchronize();
        }
        links.meet();
        return "done";
      },
      timeout);
}

TEST_F(NcclRanks, AWaitForADeviceEndsWithTheRankThatItWaitsFor) {
  constexpr std::chrono::seconds kLong{60};
  constexpr std::chrono::milliseconds kShort{700};
  for (const int operations : {1, 4}) {
    const auto done = ends_without([] {}, operations, kLong);
    expect_all_return(done, "done");

    const RankEnd gone = ends_without([] { ::_exit(0); }, operations, kLong)[0];
    EXPECT_EQ(gone.kind, "RankGone") << gone.what;
    EXPECT_TRUE(gone.what.starts_with("rank 1: expected")) << gone.what;

    const RankEnd failed =
        ends_without([] { throw Error(ExitCode::kResources, "OutOfMemory", "too little"); },
                     operations, kLong)[0];
    EXPECT_EQ(failed.kind, "OutOfMemory") << failed.what;
    EXPECT_EQ(failed.what, "rank 1: too little");

    const auto begin = std::chrono::steady_clock::now();
    const RankEnd silent = ends_without([] { ::raise(SIGSTOP); }, operations, kShort)[0];
    EXPECT_EQ(silent.kind, "RankSilent") << silent.what;
    EXPECT_EQ(silent.code, ExitCode::kCommunication);
    EXPECT_EQ(silent.what,
              "NCCL: expected all ranks at an operation within 0.7 s, found that one is missing");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  }
}

// What a prompt queues takes longer than a rank may be silent; each single wait does not.
TEST_F(NcclRanks, ALongQueueIsWaitedForInParts) {
  static constexpr std::chrono::milliseconds kTimeout{3000}, kEach{10};
  constexpr int kOperations = 650;
  const auto ends = run_ranks(
      2,
      [&](RankLinks& links) {
        Device d(links, true);
        const Tensor parts(d.backend->allocator(), DType::kF32, {2, 1}, Place::kDevice,
                           MemTag::kActivations);
        std::array<float, 2> zeros{};
        d.backend->upload(parts.view(), make_view(zeros.data(), DType::kF32, {2, 1}));
        auto& queue = dynamic_cast<cuda::DeviceQueue&>(*d.backend);
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < kOperations; ++i) {
          cudaLaunchHostFunc(
              queue.compute_stream(), [](void*) { std::this_thread::sleep_for(kEach); }, nullptr);
          d.ranks->all_gather(parts.view());
        }
        d.backend->synchronize();
        const auto took = std::chrono::steady_clock::now() - begin;
        links.meet();
        return took > 2 * kTimeout ? "longer" : "shorter";
      },
      kTimeout);
  expect_all_return(ends, "longer");
}

TEST_F(NcclRanks, ASystemErrorSaysWhatContainersLack) {
  EXPECT_EQ(shared_memory_advice(std::int64_t{64} << 20),
            "; /dev/shm has 64 MiB, of which cards without access to each other need more: start "
            "the container with --shm-size=1g");
  EXPECT_EQ(shared_memory_advice(std::int64_t{8} << 30), "");
  const auto backend = make_cuda_backend({});
  setenv("TF_EMULATOR_NCCL_ERROR", "2", 1);
  try {
    make_nccl_communicator(*backend, {.shard = {0, 1},
                                      .id = make_nccl_id(),
                                      .timeout = std::chrono::seconds(1),
                                      .check_ranks = {}});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kCommunication);
    EXPECT_NE(std::string(e.what()).find("expected to start, found: unhandled system error; "),
              std::string::npos)
        << e.what();
  }
  unsetenv("TF_EMULATOR_NCCL_ERROR");
}

TEST_F(NcclRanks, OneThatDoesNotStartIsMissed) {
  const auto ends = run_ranks(
      2,
      [](RankLinks& links) -> std::string {
        const std::unique_ptr<Backend> backend =
            make_cuda_backend({.device = links.shard().rank, .dtype = DType::kBF16});
        if (links.shard().rank == 1) {
          std::vector<std::uint8_t> found = {1, 1};
          links.all_gather(std::as_writable_bytes(std::span(found)));
          ::raise(SIGSTOP);
        }
        return connect_devices(*backend, links)->description();
      },
      std::chrono::milliseconds(500));
  EXPECT_EQ(ends[0].kind, "RankSilent") << ends[0].what << ends[0].value;
}

}  // namespace
}  // namespace triforce
