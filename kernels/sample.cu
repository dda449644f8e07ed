#include <algorithm>

#include "kernels/draw.cuh"
#include "kernels/jobs.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 512;

// sampling.h: a distribution whose logits were not finite is NaN as a whole.
TF_DEVICE bool is_finite(const float* probs) { return probs[0] == probs[0]; }

// sampling.h: sample_with(). After the first child, only the sum of the chunk that the last one was
// taken from is another. `several`: any job has several children.
__global__ void __launch_bounds__(kThreads, 1)
    sample_kernel(Jobs<SampleJob> jobs, int vocab, bool coupled, bool several, Token* out) {
  TF_SHARED(SampleScratch, s);
  jobs.fetch([&](const SampleJob& from) {
    if (threadIdx.x == 0) s->job = from;
  });
  const TakenIds taken(&s->draw, vocab, several);
  taken.clear(vocab);
  __syncthreads();
  const SampleJob job = s->job;
  TF_IN_DEVICE_MEMORY(job.probs);
  const bool finite = is_finite(job.probs);
  Racer racer;
  std::uint64_t certain = 0;  // ranks below it are taken
  int first = 0, end = chunks_of(vocab);
  bool weighs = finite;
  TF_UNROLL_N(1)
  for (int c = 0; c < job.children; ++c) {
    std::int32_t id = -1;
    if (weighs && coupled) {
      racer = race(job.probs, vocab, job.key, job.position, racer, &s->draw);
      id = racer.id;
    } else if (weighs) {
      const Weight weight{.p = job.probs, .taken = taken};
      const auto uniform = [&] {
        return philox_uniform(s->job.key, Purpose::kPropose,
                              static_cast<std::uint32_t>(s->job.position),
                              s->job.sibling + static_cast<std::uint32_t>(c));
      };
      const bool is_given = c == 0 && job.given >= 0;
      if (!is_given) sum_and_choose(weight, vocab, first, end, true, uniform, &s->draw);
      id = is_given ? job.given : s->draw.chosen;
      if (id >= 0 && threadIdx.x == 0) taken.set(id);
      if (!is_given) {  // else nothing is summed yet
        first = id / kChunk;
        end = first + 1;
      }
    }
    weighs &= id >= 0;
    if (finite && !weighs && job.logits != nullptr) {
      TF_IN_DEVICE_MEMORY(job.logits);
      const std::uint64_t rank = next_certain(job.probs, job.logits, vocab, certain, &s->draw);
      id = static_cast<std::int32_t>(rank);
      certain = rank + 1;
    }
    if (threadIdx.x == 0) out[job.first + c] = id;
  }
}

// Of a draft tree, whose root has row 0, and node i row i + 1.
struct Nodes {
  Token tokens[kMaxProposals];
  std::uint8_t parent_rows[kMaxProposals];
  std::uint8_t first_child[kMaxProposals + 2];  // of a row; behind the last: the number of nodes
};
struct VerifyJob {
  const float *p, *q;
  std::int64_t p_stride, q_stride;
  DrawKey key;
  std::int64_t position;
  std::int32_t nodes;
};
struct TreeJob {
  VerifyJob job;
  Nodes nodes;
};
static_assert(kMaxSequences * std::max(sizeof(TreeJob), sizeof(SampleJob)) <= kJobBytes);

// VerifyRule without its optional, which device code does not know.
struct Rule {
  Acceptance acceptance;
  Correction correction;
  bool synthetic;
  SyntheticRates rates;
};

// What a verification needs of shared memory: of each node the probabilities of its token, and
// those of id 0, which tell what is finite. Rows are one more than nodes.
struct VerifyScratch {
  VerifyJob job;
  Nodes nodes;
  float p_token[kMaxProposals + 1], q_token[kMaxProposals + 1], q_first[kMaxProposals + 1],
      p_first[kMaxProposals + 1];
  DrawScratch draw;  // ends with as many sums as there is room for, and taken ids
};

// What is to be known next at a node.
enum class Wanted : std::uint8_t {
  kVerdict,   // on a child
  kDraftSum,  // of q without the children before it
  kRestSum,   // of what is left of p
  kToken,     // where no child is kept
};

// sampling.h: verify_with(), step by step; every thread takes the same way. One place sums and
// draws, so that its code is there once.
TF_DEVICE VerifyResult verify_all(const VerifyJob& job, int vocab, const Rule& rule,
                                  const TakenIds& taken, VerifyScratch* s) {
  const bool coupled = rule.acceptance == Acceptance::kCoupled;
  VerifyResult v{0, -1, -1};
  int level = 0;  // the first node at this position
  for (;; ++v.accepted) {
    const int row = v.last + 1;
    const auto word = static_cast<std::uint32_t>(job.position + v.accepted);
    const float* const p = job.p + row * job.p_stride;
    const float* const q = job.q + row * job.q_stride;
    const int begin = s->nodes.first_child[row], end = s->nodes.first_child[row + 1];
    const auto chance = [&](Purpose purpose, int node) {
      return philox_uniform(job.key, purpose, word, static_cast<std::uint32_t>(node - level));
    };
    int child = begin, kept = -1;
    Wanted wanted = Wanted::kToken;
    if (!is_finite(&s->p_first[row])) return v;
    if (rule.synthetic) {
      while (child < end && !(chance(Purpose::kSynthetic, child) < rule.rates.by_depth[v.accepted]))
        ++child;
      if (child < end) kept = child;
    } else if (!coupled && begin < end) {
      if (!is_finite(&s->q_first[begin])) return v;
      wanted = Wanted::kVerdict;
    }
    double draft_sum = 1, rest_sum = 1;
    Weight rest{.p = p, .q = q, .taken = taken};  // what is left of p
    std::int32_t token = -1;
    while (kept < 0) {
      if (wanted == Wanted::kVerdict) {
        const float of_q = s->q_token[child];
        const double drafted = draft_sum > 0 ? static_cast<double>(of_q) / draft_sum : 1.0;
        const double ratio = rest.rest(s->p_token[child], of_q) / rest_sum / drafted;
        if (chance(Purpose::kAccept, child) < ratio) {
          kept = child;
          break;
        }
        wanted = Wanted::kToken;
        if (rule.correction == Correction::kResidual) {
          if (threadIdx.x == 0) taken.set(s->nodes.tokens[child]);
          rest.is_residual = true;
          if (draft_sum > 0) rest.share += rest_sum / draft_sum;
          if (++child < end) wanted = Wanted::kDraftSum;
        }
      }
      if (coupled) {
        token = race(p, vocab, job.key, job.position + v.accepted, {}, &s->draw).id;
        break;
      }
      const bool drafts = wanted == Wanted::kDraftSum, draws = wanted == Wanted::kToken;
      const Weight weight = drafts ? Weight{.p = q, .q = q, .taken = taken} : rest;
      TF_IN_DEVICE_MEMORY(weight.p);
      TF_IN_DEVICE_MEMORY(weight.q);
      sum_and_choose(
          weight, vocab, 0, chunks_of(vocab), draws,
          [&] { return philox_uniform(job.key, Purpose::kCorrect, word); }, &s->draw);
      const double total = s->draw.total;
      if (drafts) {
        draft_sum = total;
        wanted = Wanted::kRestSum;
      } else if (rest.is_residual && !(total > 0)) {
        rest = {.p = p, .q = q};  // nothing is left of it
        wanted = Wanted::kToken;
      } else if (draws) {
        token = s->draw.chosen;
        break;
      } else {
        rest_sum = total;
        wanted = Wanted::kVerdict;
      }
    }
    if (coupled && kept < 0 && !rule.synthetic) {
      for (int i = begin; i < end && kept < 0; ++i) {
        if (s->nodes.tokens[i] == token) kept = i;
      }
    }
    if (kept < 0) {
      v.next = token;
      return v;
    }
    if (threadIdx.x == 0) {
      for (int i = begin; i < child; ++i) taken.reset(s->nodes.tokens[i]);
    }
    v.last = kept;
    level = s->nodes.first_child[level + 1];
  }
}

// `several`: any tree has siblings.
__global__ void __launch_bounds__(kThreads, 1)
    verify_kernel(Jobs<TreeJob> jobs, int vocab, Rule rule, bool several, VerifyResult* out) {
  TF_SHARED(VerifyScratch, s);
  const auto i = static_cast<int>(threadIdx.x);
  // All loads come before the stores: they are far away.
  jobs.fetch([&](const TreeJob& from) {
    const int node = min(i, kMaxProposals - 1), row = min(i, kMaxProposals + 1);
    const Token token = from.nodes.tokens[node];
    const std::uint8_t parent_row = from.nodes.parent_rows[node];
    const std::uint8_t first_child = from.nodes.first_child[row];
    if (i == 0) s->job = from.job;
    if (i == node) {
      s->nodes.tokens[i] = token;
      s->nodes.parent_rows[i] = parent_row;
    }
    if (i == row) s->nodes.first_child[i] = first_child;
  });
  const TakenIds taken(&s->draw, vocab, several);
  taken.clear(vocab);
  __syncthreads();
  const VerifyJob job = s->job;
  TF_IN_DEVICE_MEMORY(job.p);
  TF_IN_DEVICE_MEMORY(job.q);
  if (i <= job.nodes) {
    const bool is_node = i < job.nodes;
    const int row = is_node ? s->nodes.parent_rows[i] : 0;
    const Token t = is_node ? s->nodes.tokens[i] : 0;
    const float *const p = job.p + row * job.p_stride, *const q = job.q + row * job.q_stride;
    const float p_first = job.p[i * job.p_stride], p_token = p[t], q_token = q[t], q_first = q[0];
    s->p_first[i] = p_first;
    s->p_token[i] = p_token;
    s->q_token[i] = q_token;
    s->q_first[i] = q_first;
  }
  __syncthreads();
  const VerifyResult v = verify_all(job, vocab, rule, taken, s);
  if (i == 0) out[blockIdx.x] = v;
}

TreeJob tree_job(const VerifyRequest& r) {
  const std::size_t n = r.tokens.size();
  TreeJob job{{static_cast<const float*>(r.p.data), static_cast<const float*>(r.q.data),
               r.p.stride[0], r.q.stride[0], r.key, r.position, static_cast<std::int32_t>(n)},
              {}};
  if (n == 0) job.job.q = job.job.p;  // which is not read
  std::size_t row = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t parent_row =
        r.parents.empty() ? i : static_cast<std::size_t>(r.parents[i] + 1);
    job.nodes.tokens[i] = r.tokens[i];
    job.nodes.parent_rows[i] = static_cast<std::uint8_t>(parent_row);
    for (; row <= parent_row; ++row) job.nodes.first_child[row] = static_cast<std::uint8_t>(i);
  }
  for (; row < n + 2; ++row) job.nodes.first_child[row] = static_cast<std::uint8_t>(n);
  return job;
}
bool has_siblings(const VerifyRequest& r) {
  return std::ranges::adjacent_find(r.parents) != r.parents.end();
}

}  // namespace

void sample(std::span<const SampleRequest> requests, Acceptance acceptance, void* jobs, Token* out,
            cudaStream_t stream) {
  const auto vocab = static_cast<int>(requests.front().probs.numel());
  const bool several =
      std::ranges::any_of(requests, [](const SampleRequest& r) { return r.children > 1; });
  launch(sample_kernel, dims(std::ssize(requests)), dims(kThreads),
         sample_scratch_bytes(vocab) + (several ? TakenIds::bytes(vocab) : 0), stream,
         sample_jobs(requests, jobs), vocab, acceptance == Acceptance::kCoupled, several, out);
}

void verify(std::span<const VerifyRequest> requests, const VerifyRule& rule, void* jobs,
            VerifyResult* out, cudaStream_t stream) {
  const auto vocab = static_cast<int>(requests.front().p.shape[1]);
  const bool several = std::ranges::any_of(requests, has_siblings);
  const Rule plain{rule.acceptance, rule.correction, rule.synthetic.has_value(),
                   rule.synthetic.value_or(SyntheticRates{})};
  launch(verify_kernel, dims(std::ssize(requests)), dims(kThreads),
         sizeof(VerifyScratch) - sizeof(DrawScratch) + draw_scratch_bytes(vocab) +
             (several ? TakenIds::bytes(vocab) : 0),
         stream, make_jobs<TreeJob>(requests, jobs, tree_job), vocab, plain, several, out);
}

}  // namespace triforce::kernels
