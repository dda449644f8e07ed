// Tests: tests/decode/lookup_test.cpp
#include "decode/lookup_proposer.h"
#include "decode/pass_cache.h"

namespace triforce {
namespace {

// No model: tokens are looked up in what the sequence has so far.
class LookupPass final : public PassRunner {
 public:
  explicit LookupPass(const PassSetup& s) : PassRunner(s) {
    for (int l = 0; l < s.context.lanes(); ++l) {
      texts_.push_back(std::make_unique<SuffixAutomaton>(s.context.cache(l).capacity()));
    }
  }
  bool fill(int lane, const PrefillProgress& progress, const StopRequested& stop) override {
    constexpr std::int64_t kBetweenStops = 1 << 16;
    SuffixAutomaton& text = text_of(lane);
    const std::span<const Token> prompt = s_.context.prompt(lane);
    text.clear();
    for (const Token t : prompt) {
      if (text.length() % kBetweenStops == 0) {
        if (stop && stop()) return false;
        if (progress) progress(s_.pass, text.length(), std::ssize(prompt));
      }
      text.append(t);
      text.mark();
    }
    return true;
  }
  void rewind(int lane) override { text_of(lane).truncate(text_of(lane).marked()); }
  std::unique_ptr<Proposer> proposer(const MethodSpec& /*method*/, const DraftTree& asked,
                                     std::span<LayerObserver* const> /*observers*/) override {
    return std::make_unique<LookupProposer>(s_.context.backend(), texts_, s_.options.lookup,
                                            asked.nodes(), s_.weights.config.vocab, s_.timer);
  }
  void run(std::span<const Token> tokens) override {
    std::vector<Token> found;
    for (const auto& text : texts_) {
      look_up(*text, s_.options.lookup, static_cast<int>(tokens.size()), found);
    }
  }

 private:
  SuffixAutomaton& text_of(int lane) { return *texts_[static_cast<std::size_t>(lane)]; }

  LookupProposer::Texts texts_;
};

void plan_lookup(PlanSums& sums, Pass pass) {
  for (const Method m : sums.in().run.methods) {
    if (spec_of(m).proposer() != pass) continue;
    sums.add(MemTag::kWorkspace, LookupProposer::workspace_bytes());
  }
}

}  // namespace

const PassKind kLookupKind = {[](const PassSetup& setup) -> std::unique_ptr<PassRunner> {
                                return std::make_unique<LookupPass>(setup);
                              },
                              plan_lookup};

}  // namespace triforce
