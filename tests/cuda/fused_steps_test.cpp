// Calls that one kernel does together against the same calls one at a time, bit for bit.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>

#include "cuda/device_test.h"
#ifdef TF_CUDA_EMULATED
#include "tf_emulator.h"
#endif

namespace triforce {
namespace {

using namespace cuda;

struct Shape {
  std::int64_t rows, hidden, features;
  int heads, kv_heads, d;
  bool rotate_on_read = false, on_host = false;
  int runs = 1;  // of KV heads
  Quantisation weights = Quantisation::kNone;
};

Shape quantised(Shape shape, Quantisation by) {
  shape.weights = by;
  return shape;
}

using FusedStepsTest = DeviceTest;

// All that a call writes.
using Written = std::vector<std::vector<std::uint16_t>>;

// body(after_each): the calls, with after_each() behind each of them.
template <class Body>
void expect_equal_at_once(Backend& b, const Body& body) {
  const Written apart = body([&] { b.synchronize(); });
  const Written together = body([] {});
  ASSERT_EQ(apart.size(), together.size());
  for (std::size_t i = 0; i < apart.size(); ++i) EXPECT_EQ(apart[i], together[i]) << i;
}

TEST_P(FusedStepsTest, FeedForward) {
  for (const Shape& s :
       {Shape{1, 40, 16, 0, 0, 0}, Shape{2, 200, 48, 0, 0, 0}, Shape{2, 4100, 16, 0, 0, 0},
        Shape{3, 200, 48, 0, 0, 0}, Shape{2, 72, 56, 0, 0, 0}, Shape{9, 72, 32, 0, 0, 0},
        Shape{32, 264, 16, 0, 0, 0}, quantised({1, 200, 16, 0, 0, 0}, Quantisation::kInt8),
        quantised({9, 4200, 16, 0, 0, 0}, Quantisation::kInt8),
        quantised({8, 4200, 16, 0, 0, 0}, Quantisation::kInt4),
        quantised({16, 200, 32, 0, 0, 0}, Quantisation::kInt4),
        quantised({19, 72, 16, 0, 0, 0}, Quantisation::kInt4)}) {
    SCOPED_TRACE(
        fmt::format("{} rows, {} to {}, {}", s.rows, s.hidden, s.features, to_string(s.weights)));
    const Tensor x = filled(DType::kF32, {s.rows, s.hidden}, 1);
    const Tensor w = filled(DType::kF32, {s.hidden}, 2);
    const Matrix m = matrix(2 * s.features, s.hidden, 3, s.weights);
    expect_equal_at_once(*b_, [&](const auto& after_each) -> Written {
      const Tensor h = filled(GetParam(), {s.rows, s.hidden}, 4);
      const Tensor both = filled(GetParam(), {s.rows, 2 * s.features}, 5);
      const Tensor out = filled(GetParam(), {s.rows, s.features}, 6);
      b_->rms_norm(x.view(), w.view(), 1e-5F, h.view());
      after_each();
      b_->linear(h.view(), m, both.view(), false);
      after_each();
      b_->swiglu(both.view(), out.view());
      return {bits(h), bits(both), bits(out)};
    });
  }
}

TEST_P(FusedStepsTest, RotationAndAppend) {
  for (const Shape& s : {Shape{1, 40, 0, 1, 1, 64}, Shape{2, 200, 0, 4, 2, 64},
                         Shape{3, 72, 0, 2, 1, 128}, Shape{2, 40, 0, 4, 2, 64, false, false, 2},
                         Shape{2, 72, 0, 2, 2, 128, true}, Shape{17, 40, 0, 2, 1, 64, false, true},
                         quantised({1, 72, 0, 2, 1, 64}, Quantisation::kInt8),
                         quantised({9, 40, 0, 1, 1, 64}, Quantisation::kInt8),
                         quantised({2, 200, 0, 4, 2, 64, false, false, 2}, Quantisation::kInt4),
                         quantised({16, 72, 0, 1, 1, 128}, Quantisation::kInt4),
                         quantised({17, 40, 0, 2, 1, 64, true}, Quantisation::kInt4)}) {
    SCOPED_TRACE(fmt::format("{} rows, {} heads over {} of {}, {}", s.rows, s.heads, s.kv_heads,
                             s.d, to_string(s.weights)));
    const std::int64_t width = (s.heads + 2 * s.kv_heads) * s.d, capacity = 48;
    const Tensor x = filled(DType::kF32, {s.rows, s.hidden}, 1);
    const Tensor w = filled(DType::kF32, {s.hidden}, 2);
    const Matrix m = matrix(width, s.hidden, 3, s.weights);
    const Tensor cos = filled(DType::kF32, {capacity, s.d / 2}, 4);
    const Tensor sin = filled(DType::kF32, {capacity, s.d / 2}, 5);
    Tensor numbers(b_->allocator(), DType::kI32, {1 + s.rows}, Place::kDevice, MemTag::kWorkspace);
    std::vector<std::int32_t> host{37};
    for (std::int64_t i = 0; i < s.rows; ++i) host.push_back(static_cast<std::int32_t>(20 + i));
    b_->upload(numbers.view(), make_view(host.data(), DType::kI32, {1 + s.rows}));
    expect_equal_at_once(*b_, [&](const auto& after_each) -> Written {
      const Place place = s.on_host ? Place::kPinned : Place::kDevice;
      const Tensor k(b_->allocator(), GetParam(), {s.kv_heads, capacity, s.d}, place,
                     MemTag::kKvFull);
      const Tensor v(b_->allocator(), GetParam(), {s.kv_heads, capacity, s.d}, place,
                     MemTag::kKvFull);
      const Tensor h = filled(GetParam(), {s.rows, s.hidden}, 6);
      const Tensor qkv = filled(GetParam(), {s.rows, width}, 7);
      const Tensor q = filled(GetParam(), {s.rows, s.heads, s.d}, 8);
      KvView kv;
      kv.k = k.view().data;
      kv.v = v.view().data;
      kv.format.type = GetParam();
      kv.kv_heads = kv.layer_heads = s.kv_heads;
      kv.head_dim = s.d;
      kv.capacity = capacity;
      kv.head_stride = capacity * s.d;
      kv.length = numbers.view().as<std::int32_t>();
      kv.format.rotate_on_read = s.rotate_on_read;
      kv.on_host = s.on_host;
      b_->rms_norm(x.view(), w.view(), 1e-5F, h.view());
      after_each();
      b_->linear(h.view(), m, qkv.view(), false);
      after_each();
      const int each = s.kv_heads / s.runs, group = s.heads / s.kv_heads;
      for (int first = 0; first < s.kv_heads; first += each) {
        b_->rope_append(qkv.view(), numbers.view().rows(1, s.rows), {cos.view(), sin.view()},
                        q.view().slice(1, first * group, each * group), kv.heads(first, each));
        after_each();
      }
      return {bits(h), bits(qkv), bits(q), bits(k, place), bits(v, place)};
    });
  }
}

// A layer whose KV heads are on the host, on the device and far from it: calls that are for one
// kernel, and such that cannot be.
TEST_P(FusedStepsTest, RotationAndAppendInSeveralPlaces) {
  constexpr int kHeads = 6, kKvHeads = 3, kGroup = kHeads / kKvHeads, kDim = 64;
  constexpr std::int64_t kWidth = (kHeads + 2 * kKvHeads) * kDim, kHidden = 40, kRoom = 48;
  const Tensor w = filled(DType::kF32, {kHidden}, 2);
  Matrix m = matrix(kWidth, kHidden, 3);
  m.bias = filled(DType::kF32, {kWidth}, 9);
  const Tensor cos = filled(DType::kF32, {kRoom, kDim / 2}, 4);
  const Tensor sin = filled(DType::kF32, {kRoom, kDim / 2}, 5);
  struct Case {
    std::array<int, 3> order;  // in which parts are appended
    int odd_position = -1;     // part whose rows have other positions
    bool is_one_kernel = false;
  };
  const auto check = [&](std::int64_t rows, const Case& c) {
    SCOPED_TRACE(
        fmt::format("{} rows, order {}, odd {}", rows, fmt::join(c.order, " "), c.odd_position));
    const Tensor x = filled(DType::kF32, {rows, kHidden}, 1);
    Tensor numbers(b_->allocator(), DType::kI32, {1 + 2 * rows}, Place::kDevice,
                   MemTag::kWorkspace);
    std::vector<std::int32_t> host{37};
    for (std::int64_t i = 0; i < 2 * rows; ++i) host.push_back(static_cast<std::int32_t>(3 + i));
    b_->upload(numbers.view(), make_view(host.data(), DType::kI32, {1 + 2 * rows}));
    [[maybe_unused]] std::uint64_t launches = 0;
    expect_equal_at_once(*b_, [&](const auto& after_each) -> Written {
      const std::array<Place, 3> places{Place::kPinned, Place::kDevice, Place::kPinned};
      std::vector<Tensor> k, v;
      std::vector<KvView> parts;
      for (int i = 0; i < kKvHeads; ++i) {
        for (std::vector<Tensor>* t : {&k, &v}) {
          t->emplace_back(b_->allocator(), GetParam(),
                          std::initializer_list<std::int64_t>{kRoom, kDim},
                          places[static_cast<std::size_t>(i)], MemTag::kKvFull);
        }
        KvView& kv = parts.emplace_back();
        kv.k = k.back().view().data;
        kv.v = v.back().view().data;
        kv.format.type = GetParam();
        kv.first_head = i;
        kv.kv_heads = 1;
        kv.layer_heads = kKvHeads;
        kv.head_dim = kDim;
        kv.capacity = kRoom;
        kv.head_stride = kRoom * kDim;
        kv.length = numbers.view().as<std::int32_t>();
        kv.on_host = i == 0;
      }
      const Tensor h = filled(GetParam(), {rows, kHidden}, 6);
      const Tensor qkv = filled(GetParam(), {rows, kWidth}, 7);
      const Tensor q = filled(GetParam(), {rows, kHeads, kDim}, 8);
      b_->synchronize();
#ifdef TF_CUDA_EMULATED
      launches = tf_emulator::counters().launches;
#endif
      b_->rms_norm(x.view(), w.view(), 1e-5F, h.view());
      after_each();
      b_->linear(h.view(), m, qkv.view(), false);
      after_each();
      for (const int i : c.order) {
        b_->rope_append(qkv.view(), numbers.view().rows(i == c.odd_position ? 1 + rows : 1, rows),
                        {cos.view(), sin.view()}, q.view().slice(1, i * kGroup, kGroup),
                        parts[static_cast<std::size_t>(i)]);
        after_each();
      }
      b_->synchronize();
#ifdef TF_CUDA_EMULATED
      launches = tf_emulator::counters().launches - launches;
#endif
      Written written{bits(h), bits(qkv), bits(q)};
      for (std::size_t i = 0; i < parts.size(); ++i) {
        written.push_back(bits(k[i], places[i]));
        written.push_back(bits(v[i], places[i]));
      }
      return written;
    });
#ifdef TF_CUDA_EMULATED
    EXPECT_EQ(launches, c.is_one_kernel ? 2U : 5U);
#endif
  };
  const auto check_all = [&] {
    for (const std::int64_t rows : {1, 3, 17}) {
      check(rows, {{0, 1, 2}, -1, true});
      check(rows, {{0, 1, 2}, 1});
      check(rows, {{0, 2, 1}});
      check(rows, {{1, 0, 2}});
    }
  };
  check_all();
#ifdef TF_CUDA_EMULATED
  tf_emulator::set_blocks({tf_emulator::BlockOrder::kBackward, 0, true});
  check_all();
  tf_emulator::set_blocks({});
#endif
}

// What a later call writes may be what an earlier one reads.
TEST_P(FusedStepsTest, CallsThatShareMemory) {
  const std::int64_t width = 32;
  const Tensor w = filled(DType::kF32, {width}, 2);
  const Matrix square = matrix(width, width, 3), wide = matrix(2 * width, width, 4);
  const auto check = [&](std::int64_t rows) {
    expect_equal_at_once(*b_, [&](const auto& after_each) -> Written {
      const Tensor x = filled(DType::kF32, {rows, width}, 1);
      const Tensor h = filled(GetParam(), {rows, width}, 5);
      const Tensor both = filled(GetParam(), {rows, 2 * width}, 6);
      b_->rms_norm(x.view(), w.view(), 1e-5F, h.view());
      after_each();
      b_->linear(h.view(), square, x.view(), false);  // over what the norm was of
      after_each();
      b_->rms_norm(x.view(), w.view(), 1e-5F, h.view());
      after_each();
      b_->linear(h.view(), wide, both.view(), false);
      after_each();
      b_->swiglu(both.view(), h.view());  // over what the product was of
      after_each();
      b_->rms_norm(x.view(), w.view(), 1e-5F, x.view());  // in place
      after_each();
      b_->linear(h.view(), square, x.view(), true);
      return {bits(x), bits(h), bits(both)};
    });
  };
  for (const std::int64_t rows : {2, 3}) check(rows);
#ifdef TF_CUDA_EMULATED
  tf_emulator::set_blocks({tf_emulator::BlockOrder::kBackward, 0, true});
  for (const std::int64_t rows : {2, 3}) check(rows);
  tf_emulator::set_blocks({});
#endif
}

// Rows that fit a block's shared memory and one that does not, of whole chunks and with an end;
// cuts of all kinds, a certain token, and a row that is not finite.
TEST_P(FusedStepsTest, ProbabilitiesAndADraw) {
  struct Case {
    std::int64_t vocab;
    SamplingParams params;
  };
  for (const Case& c :
       {Case{1, {}}, Case{100, {1, 1, 0}}, Case{1024, {}}, Case{1025, {0, 1, 0}},
        Case{4097, {0.8F, 0.9F, 50}}, Case{32000, {}}, Case{70001, {1, 0.99F, 0}}}) {
    for (const Acceptance acceptance : {Acceptance::kSpeculative, Acceptance::kCoupled}) {
      for (const bool finite : {true, false}) {
        SCOPED_TRACE(fmt::format("{} ids, T {}, coupled {}, finite {}", c.vocab,
                                 c.params.temperature, acceptance == Acceptance::kCoupled, finite));
        const Tensor logits = filled(DType::kF32, {1, c.vocab}, 3);
        if (!finite) {
          float bad = -std::numeric_limits<float>::infinity();
          b_->upload(logits.view().slice(1, c.vocab / 2, 1), make_view(&bad, DType::kF32, {1, 1}));
        }
        expect_equal_at_once(*b_, [&](const auto& after_each) -> Written {
          const Tensor probs = filled(DType::kF32, {1, c.vocab}, 4);
          Written written;
          for (std::uint32_t round = 0; round < 3; ++round) {
            b_->to_probs(logits.view(), c.params, probs.view());
            after_each();
            const Token token = b_->sample(probs.view(), {7, 1, 0, round}, 50, acceptance);
            EXPECT_EQ(token < 0, !finite);
            written.push_back({static_cast<std::uint16_t>(token & 0xffff),
                               static_cast<std::uint16_t>(token >> 16)});
            written.push_back(bits(probs));
          }
          return written;
        });
      }
    }
  }
}

// Rows of several sequences, of which one is not finite; a token from each, or several children of
// one.
TEST_P(FusedStepsTest, ProbabilitiesAndDrawsOfSeveralSequences) {
  constexpr std::int64_t kLanes = 3;
  for (const std::int64_t vocab : {100, 4097}) {
    for (const Acceptance acceptance : {Acceptance::kSpeculative, Acceptance::kCoupled}) {
      for (const std::int32_t children : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} ids, coupled {}, {} children of the last", vocab,
                                 acceptance == Acceptance::kCoupled, children));
        const Tensor logits = filled(DType::kF32, {kLanes, vocab}, 3);
        float bad = std::numeric_limits<float>::quiet_NaN();
        b_->upload(logits.view().rows(1, 1).slice(1, vocab / 2, 1),
                   make_view(&bad, DType::kF32, {1, 1}));
        expect_equal_at_once(*b_, [&](const auto& after_each) -> Written {
          const Tensor probs = filled(DType::kF32, {kLanes, vocab}, 4);
          b_->to_probs(logits.view(), {0.8F, 0.9F, 0}, probs.view());
          after_each();
          std::vector<SampleRequest> requests;
          for (std::int64_t i = 0; i < kLanes; ++i) {
            requests.push_back({probs.view().rows(i, 1),
                                logits.view().rows(i, 1),
                                {7, static_cast<std::uint32_t>(i), 0, 2},
                                50 + i});
          }
          requests.back().children = children;
          requests.front().sibling = 4;
          std::vector<Token> tokens(static_cast<std::size_t>(kLanes - 1 + children));
          b_->sample(requests, acceptance, tokens);
          EXPECT_EQ(tokens[1], -1);
          Written written{bits(probs)};
          for (const Token t : tokens) {
            written.push_back(
                {static_cast<std::uint16_t>(t & 0xffff), static_cast<std::uint16_t>(t >> 16)});
          }
          return written;
        });
      }
    }
  }
}

// Probabilities that are held back are there for whatever call follows, and the draw from them is
// the same after it.
TEST_P(FusedStepsTest, ProbabilitiesAreNotLostByACallBetween) {
  constexpr std::int64_t kVocab = 300, kWidth = 32;
  const Tensor logits = filled(DType::kF32, {2, kVocab}, 3);
  const Tensor other = filled(DType::kF32, {1, kVocab}, 5);
  const Tensor x = filled(DType::kF32, {1, kWidth}, 1), w = filled(DType::kF32, {kWidth}, 2);
  const Tensor h = filled(GetParam(), {1, kWidth}, 6), gate_up = filled(GetParam(), {1, 64}, 7);
  const Tensor copied = filled(DType::kF32, {1, kVocab}, 8);
  const Matrix m = matrix(kWidth, kWidth, 3);
  const DrawKey key{7, 1, 0, 2};
  Tensor probs = filled(DType::kF32, {2, kVocab}, 9);
  const TensorView row = probs.view().rows(0, 1);
  const auto draw = [&] { return b_->sample(row, key, 50, Acceptance::kSpeculative); };
  const auto make = [&] { b_->to_probs(logits.view().rows(0, 1), {}, row); };
  make();
  b_->synchronize();
  const Token token = draw();
  std::vector<float> expected(kVocab), read(kVocab);
  b_->download(make_view(expected.data(), DType::kF32, {1, kVocab}), row);

  const std::pair<const char*, std::function<void()>> calls[] = {
      {"nothing", [] {}},
      {"synchronize", [&] { b_->synchronize(); }},
      {"download",
       [&] {
         b_->download(make_view(read.data(), DType::kF32, {1, kVocab}), row);
       }},
      {"upload",
       [&] {
         b_->upload(x.view(), make_view(read.data(), DType::kF32, {1, kWidth}));
       }},
      {"copy", [&] { b_->copy(copied.view(), row); }},
      {"clear", [&] { b_->clear(copied.view()); }},
      {"norm", [&] { b_->rms_norm(x.view(), w.view(), 1e-5F, h.view()); }},
      {"product", [&] { b_->linear(h.view(), m, x.view(), false); }},
      {"swiglu", [&] { b_->swiglu(gate_up.view(), h.view()); }},
      {"other probabilities",
       [&] { b_->to_probs(logits.view().rows(1, 1), {}, probs.view().rows(1, 1)); }},
      {"probabilities of two rows", [&] { b_->to_probs(logits.view(), {}, probs.view()); }},
      {"another draw", [&] { b_->sample(other.view(), key, 51, Acceptance::kCoupled); }},
      {"verify", [&] { b_->verify(row, {}, {}, key, 51, {}); }},
      {"time",
       [&] {
         const Event begin = b_->record();
         EXPECT_GE(b_->elapsed_ms(begin, b_->record()), 0.0);
       }},
      {"many events",
       [&] {
         for (int i = 0; i < 20; ++i) b_->record();
       }},
      {"signal",
       [&] {
         const std::uint32_t id = b_->make_signal();
         b_->set_signal(id, Queue::kCompute);
         b_->wait_signal(id, Queue::kCopy);
         b_->copy(copied.view(), row, Queue::kCopy);
         b_->synchronize();
         b_->drop_signal(id);
       }},
      {"replay", [&] { b_->replay({}, [&] { b_->clear(x.view()); }); }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    b_->clear(probs.view());
    make();
    call();
    EXPECT_EQ(draw(), token);
    b_->download(make_view(read.data(), DType::kF32, {1, kVocab}), row);
    EXPECT_EQ(read, expected);
  }
}

// Nor by the end of what they are made of.
TEST_P(FusedStepsTest, ProbabilitiesAreMadeBeforeTheirLogitsAreGivenBack) {
  constexpr std::int64_t kVocab = 300;
  const Tensor probs = filled(DType::kF32, {1, kVocab}, 4);
  const auto made = [&](bool at_once) {
    Tensor logits = filled(DType::kF32, {1, kVocab}, 3);
    b_->to_probs(logits.view(), {}, probs.view());
    if (at_once) b_->synchronize();
    logits = {};
    const Tensor other = filled(DType::kF32, {1, kVocab}, 5);  // where they were
    return bits(probs);
  };
  const auto expected = made(true);
  EXPECT_EQ(made(false), expected);
}

#ifdef TF_CUDA_EMULATED
// Events between the two calls, as phases leave them, do not part them.
TEST_P(FusedStepsTest, ProbabilitiesAndADrawAreOneKernel) {
  constexpr std::int64_t kVocab = 300;
  const Tensor logits = filled(DType::kF32, {2, kVocab}, 3);
  const Tensor probs = filled(DType::kF32, {2, kVocab}, 4);
  const auto launches = [&](std::int64_t rows, const std::function<void()>& between) {
    b_->synchronize();
    const std::uint64_t before = tf_emulator::counters().launches;
    b_->to_probs(logits.view().rows(0, rows), {}, probs.view().rows(0, rows));
    between();
    b_->sample(probs.view().rows(0, 1), {}, 50, Acceptance::kSpeculative);
    b_->synchronize();
    return tf_emulator::counters().launches - before;
  };
  EXPECT_EQ(launches(1, [] {}), 1U);
  EXPECT_EQ(launches(2, [] {}), 2U);
  const auto of_lanes = [&](std::array<std::int64_t, 2> rows, std::int32_t children) {
    b_->synchronize();
    const std::uint64_t before = tf_emulator::counters().launches;
    b_->to_probs(logits.view(), {}, probs.view());
    const auto request = [&](std::int64_t row, std::int32_t n) {
      return SampleRequest{probs.view().rows(row, 1), logits.view().rows(row, 1), {}, 50, n};
    };
    const std::array requests{request(rows[0], 1), request(rows[1], children)};
    std::vector<Token> tokens(static_cast<std::size_t>(1 + children));
    b_->sample(requests, Acceptance::kSpeculative, tokens);
    b_->synchronize();
    return tf_emulator::counters().launches - before;
  };
  EXPECT_EQ(of_lanes({0, 1}, 1), 1U);
  EXPECT_EQ(of_lanes({1, 0}, 1), 2U);
  EXPECT_EQ(of_lanes({0, 1}, 2), 2U);
  // In places of their own.
  const auto of_requests = [&](std::size_t first_drawn) {
    b_->synchronize();
    const std::uint64_t before = tf_emulator::counters().launches;
    const std::array made{ProbsRequest{logits.view().rows(0, 1), probs.view().rows(1, 1)},
                          ProbsRequest{logits.view().rows(1, 1), probs.view().rows(0, 1)}};
    b_->to_probs(made, {});
    const std::array drawn{SampleRequest{.probs = made[first_drawn].probs},
                           SampleRequest{.probs = made[1 - first_drawn].probs}};
    std::array<Token, 2> tokens{};
    b_->sample(drawn, Acceptance::kSpeculative, tokens);
    b_->synchronize();
    return tf_emulator::counters().launches - before;
  };
  EXPECT_EQ(of_requests(0), 1U);
  EXPECT_EQ(of_requests(1), 2U);
  EXPECT_EQ(launches(1, [&] { b_->synchronize(); }), 2U);
  Event begin{}, end{};
  EXPECT_EQ(launches(1,
                     [&] {
                       begin = b_->record();
                       for (int i = 0; i < 4; ++i) end = b_->record();
                     }),
            1U);
  EXPECT_GE(b_->elapsed_ms(begin, end), 0.0);
}
#endif

INSTANTIATE_TEST_SUITE_P(Types, FusedStepsTest, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce
