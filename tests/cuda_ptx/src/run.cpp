// How warps go on: branches, lanes that part and meet, barriers, calls, blocks.
#include <cctype>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "machine.h"
#include "triforce/format.h"

namespace tf_ptx::detail {
namespace {

// The lanes that go on now stand at one place; they go on until they part, have to wait, or others
// are to go first.
class Run {
 public:
  Run(Warp& warp, Frame& frame) : warp_(warp), frame_(frame), outer_(warp.frame) {
    warp_.frame = &frame;
  }
  ~Run() { warp_.frame = outer_; }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Stop go() {
    while (frame_.live != 0) {
      if ((frame_.live & ~frame_.waiting & ~frame_.paused) == 0 && frame_.paused != 0) {
        frame_.paused = 0;
        return Stop::kPaused;
      }
      choose();
      while (goes_on()) {
      }
      if (at_barrier_) return Stop::kBarrier;
    }
    return Stop::kReturned;
  }

 private:
  Schedule schedule() const { return warp_.block->options.schedule; }
  std::uint32_t place(int lane) const { return frame_.place[static_cast<std::size_t>(lane)]; }

  // Which lanes go on: those at the place that the schedule likes best.
  void choose() {
    LaneMask ready = frame_.live & ~frame_.waiting & ~frame_.paused;
    if (ready == 0) {
      if (!all_at_one_place(frame_.live)) nobody_can_go_on();
      frame_.waiting = 0;  // they came one after another
      ready = frame_.live;
    }
    place_ = place(std::countr_zero(ready));
    if (schedule() == Schedule::kRandom) {
      std::uint64_t skip = warp_.block->random() % static_cast<std::uint64_t>(std::popcount(ready));
      LaneMask left = ready;
      for (; skip > 0; --skip) left &= left - 1;
      place_ = place(std::countr_zero(left));
    } else {
      for_each_lane(ready, [&](int lane) {
        place_ = schedule() == Schedule::kLowest ? std::min(place_, place(lane))
                                                 : std::max(place_, place(lane));
      });
    }
    lanes_ = 0;
    next_other_ = std::numeric_limits<std::uint32_t>::max();
    for_each_lane(frame_.live, [&](int lane) {
      if (place(lane) == place_) {
        lanes_ |= LaneMask{1} << lane;
      } else if (place(lane) > place_) {
        next_other_ = std::min(next_other_, place(lane));
      }
    });
    frame_.waiting &= ~lanes_;
    frame_.paused &= ~lanes_;
    parted_ = lanes_ != frame_.live;
  }

  bool all_at_one_place(LaneMask lanes) const {
    bool same = true;
    for_each_lane(lanes,
                  [&](int lane) { same = same && place(lane) == place(std::countr_zero(lanes)); });
    return same;
  }

  [[noreturn]] void nobody_can_go_on() const {
    std::map<std::uint32_t, LaneMask> groups;
    for_each_lane(frame_.live, [&](int lane) { groups[place(lane)] |= LaneMask{1} << lane; });
    std::string where;
    for (const auto& [at, lanes] : groups) {
      where += fmt::format("; lanes {:#x} at {}", lanes, frame_.function->code[at].text);
    }
    fail(Fault::kDivergence, "lanes wait for each other at different places" + where);
  }

  void stand(LaneMask lanes, std::uint32_t at) {
    for_each_lane(lanes, [&](int lane) { frame_.place[static_cast<std::size_t>(lane)] = at; });
  }
  bool stop(std::uint32_t at) {
    stand(lanes_, at);
    return false;
  }

  // One instruction. False: others are to go, or nobody.
  bool goes_on() {
    Instruction& in = frame_.function->code[place_];
    LaneMask lanes = lanes_;
    if (in.guarded) {
      const LaneMask guard = get_predicate(warp_, in.guard);
      lanes &= in.guard_negated ? ~guard : guard;
    }
    ++in.executed;
    switch (in.flow) {
      case Flow::kNext:
        if (lanes != 0) in.execute(warp_, in, lanes);
        if (warp_.pause != Pause::kNone) return pause();
        break;
      case Flow::kBranch:
        if (lanes == lanes_) {
          place_ = in.target;
          return !parted_ || stop(place_);
        }
        if (lanes == 0) break;
        stand(lanes, in.target);
        stand(lanes_ & ~lanes, place_ + 1);
        return false;
      case Flow::kReturn:
        frame_.live &= ~lanes;
        stand(lanes_ & ~lanes, place_ + 1);
        return false;
      case Flow::kBarrier:
        return barrier(in, lanes);
      case Flow::kTogether:
        if (!together(in)) return wait();
        if (lanes != 0) in.execute(warp_, in, lanes);
        if (warp_.pause != Pause::kNone) return pause();
        break;
      case Flow::kCall:
        if (lanes != 0) call(in, lanes);
        break;
    }
    ++place_;
    return !parted_ || !others_first() || stop(place_);
  }

  bool others_first() {
    if (schedule() == Schedule::kLowest) return place_ >= next_other_;
    return schedule() == Schedule::kRandom && warp_.block->random() % 8 == 0;
  }

  bool wait() {
    frame_.waiting |= lanes_;
    return stop(place_);
  }

  bool pause() {
    frame_.paused |= lanes_;
    const bool again = std::exchange(warp_.pause, Pause::kNone) == Pause::kAgain;
    return stop(again ? place_ : place_ + 1);
  }

  bool together(const Instruction& in) const {
    const LaneMask all =
        in.names_lanes ? get<LaneMask>(warp_, in.lanes, std::countr_zero(lanes_)) : kAllLanes;
    if ((all & ~frame_.live) != 0) {
      fail(Fault::kDivergence,
           fmt::format("lanes {:#x} have ended or are elsewhere: {}", all & ~frame_.live, in.text));
    }
    return (lanes_ & all) == all;
  }

  bool barrier(const Instruction& in, LaneMask lanes) {
    if (lanes != lanes_) fail(Fault::kDivergence, "a barrier for some lanes alone: " + in.text);
    if (lanes_ != frame_.live) return wait();
    if (outer_ != nullptr)
      fail(Fault::kOther, "a barrier in a function that is called: " + in.text);
    at_barrier_ = true;
    return stop(place_ + 1);
  }

  void call(const Instruction& in, LaneMask lanes) {
    Frame inner(*in.callee);
    inner.live = lanes;
    // Special registers of the caller are the callee's.
    std::copy_n(frame_.registers.begin(), kSpecialRegisters * kRegisterBytes,
                inner.registers.begin());
    const auto copy = [&](const Instruction::Copy& c, bool back) {
      for_each_lane(lanes, [&](int lane) {
        const auto l = static_cast<std::size_t>(lane);
        std::byte* const here = frame_.local.data() + l * frame_.function->local_bytes + c.here;
        std::byte* const there = inner.local.data() + l * in.callee->local_bytes + c.there;
        back ? std::memcpy(here, there, c.bytes) : std::memcpy(there, here, c.bytes);
      });
    };
    for (const Instruction::Copy& c : in.passed) copy(c, false);
    if (run_frame(warp_, inner) != Stop::kReturned)
      fail(Fault::kOther, "a barrier in a function that is called");
    for (const Instruction::Copy& c : in.returned) copy(c, true);
  }

  Warp& warp_;
  Frame& frame_;
  Frame* outer_;
  std::uint32_t place_ = 0;
  LaneMask lanes_ = 0;
  bool parted_ = false;           // other lanes stand elsewhere
  std::uint32_t next_other_ = 0;  // the lowest place of one above place_
  bool at_barrier_ = false;
};

void set_special(Frame& frame, SpecialRegister which, int lane, std::uint32_t value) {
  std::memcpy(frame.registers.data() + which * kRegisterBytes + 4 * static_cast<std::size_t>(lane),
              &value, 4);
}

// The registers of a warp's threads that say who they are.
void identify(Frame& frame, const Launch& launch, std::uint32_t warp) {
  const Extent b = launch.block, g = launch.grid;
  for (int lane = 0; lane < kLanes; ++lane) {
    const std::uint32_t thread = warp * kLanes + static_cast<std::uint32_t>(lane);
    set_special(frame, kTidX, lane, thread % b.x);
    set_special(frame, kTidY, lane, thread / b.x % b.y);
    set_special(frame, kTidZ, lane, thread / (b.x * b.y));
    set_special(frame, kNtidX, lane, b.x);
    set_special(frame, kNtidY, lane, b.y);
    set_special(frame, kNtidZ, lane, b.z);
    set_special(frame, kNctaidX, lane, g.x);
    set_special(frame, kNctaidY, lane, g.y);
    set_special(frame, kNctaidZ, lane, g.z);
    set_special(frame, kLaneId, lane, static_cast<std::uint32_t>(lane));
  }
}

// The numbers below `count` in the order of the schedule.
std::vector<std::uint64_t> ordered(std::uint64_t count, Block& block) {
  std::vector<std::uint64_t> order(count);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  if (block.options.schedule == Schedule::kHighest) std::reverse(order.begin(), order.end());
  if (block.options.schedule == Schedule::kRandom)
    std::shuffle(order.begin(), order.end(), block.random);
  return order;
}

void run_block(Block& block, std::vector<Frame>& frames, const Launch& launch) {
  std::fill(block.shared.begin(), block.shared.end(), std::byte{0xdd});
  std::fill(block.shared_states.begin(), block.shared_states.end(), kUsable);
  block.being_copied = 0;
  block.asynchronous = {};
  const std::uint32_t threads = launch.block.x * launch.block.y * launch.block.z;
  std::vector<Warp> warps(frames.size());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    Frame& frame = frames[i];
    warps[i].block = &block;
    warps[i].index = static_cast<std::uint32_t>(i);
    frame.place.fill(0);
    frame.waiting = frame.paused = 0;
    const std::uint32_t here = std::min<std::uint32_t>(threads - warps[i].index * kLanes, kLanes);
    frame.live = here == kLanes ? kAllLanes : (LaneMask{1} << here) - 1;
    for (int lane = 0; lane < kLanes; ++lane) {
      set_special(frame, kCtaidX, lane, block.index.x);
      set_special(frame, kCtaidY, lane, block.index.y);
      set_special(frame, kCtaidZ, lane, block.index.z);
    }
  }
  // All warps to their next barrier, then from there; those that pause go on in the next round.
  std::vector<Stop> stopped(warps.size(), Stop::kPaused);
  const auto all_but = [&](Stop how) {
    return std::all_of(stopped.begin(), stopped.end(),
                       [&](Stop s) { return s == how || s == Stop::kReturned; });
  };
  while (!all_but(Stop::kReturned)) {
    const std::uint64_t events = block.asynchronous.events;
    bool moved = false;
    for (const std::uint64_t i : ordered(warps.size(), block)) {
      if (stopped[i] != Stop::kPaused) continue;
      try {
        stopped[i] = run_frame(warps[i], frames[i]);
      } catch (Fail& f) {
        f.message = fmt::format("block ({},{},{}) warp {}: {}", block.index.x, block.index.y,
                                block.index.z, i, f.message);
        throw;
      }
      moved = moved || stopped[i] != Stop::kPaused;
    }
    if (all_but(Stop::kBarrier)) {
      std::replace(stopped.begin(), stopped.end(), Stop::kBarrier, Stop::kPaused);
    } else if (!moved && block.asynchronous.events == events) {
      fail(Fault::kDivergence, "warps wait for each other for ever");
    }
  }
}

// The kernel's parameters in one buffer, as PTX places them.
std::vector<std::byte> place_arguments(const Function& kernel, const Launch& launch) {
  if (launch.arguments.size() != kernel.parameters.size()) {
    fail(Fault::kOther,
         fmt::format("{} arguments, in PTX {}", launch.arguments.size(), kernel.parameters.size()));
  }
  std::vector<std::byte> out(kernel.parameter_bytes);
  for (std::size_t i = 0; i < launch.arguments.size(); ++i) {
    const std::span<const std::byte> argument = launch.arguments[i];
    const Parameter& parameter = kernel.parameters[i];
    if (argument.size() != parameter.bytes) {
      fail(Fault::kOther, fmt::format("argument {} has {} bytes, in PTX {}", i + 1, argument.size(),
                                      parameter.bytes));
    }
    std::copy(argument.begin(), argument.end(), out.begin() + parameter.offset);
  }
  return out;
}

}  // namespace

Frame::Frame(Function& f)
    : function(&f),
      registers(f.frame_bytes, std::byte{0xcd}),
      local(static_cast<std::size_t>(f.local_bytes) * kLanes, std::byte{0xcd}) {
  for (const auto& [r, bits] : f.constants) {
    if (r.bytes == 0) {
      const auto lanes = static_cast<LaneMask>(bits);
      std::memcpy(registers.data() + r.offset, &lanes, sizeof(lanes));
      continue;
    }
    const std::size_t bytes = r.bytes == 8 ? 8 : 4;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      std::memcpy(registers.data() + r.offset + bytes * lane, &bits, bytes);
    }
  }
}

Stop run_frame(Warp& warp, Frame& frame) { return Run(warp, frame).go(); }

}  // namespace tf_ptx::detail

namespace tf_ptx {

struct Program::Impl {
  detail::Module module;
  std::map<std::string, detail::Function*> kernels;  // by kernel_name

  void index() {
    for (auto& [name, function] : module.functions) {
      if (!function->kernel) continue;
      if (!kernels.emplace(kernel_name(name), function.get()).second) {
        throw std::runtime_error("two kernels named " + kernel_name(name));
      }
    }
  }
};

Program::Program(const std::string& folder) : impl_(std::make_unique<Impl>()) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".ptx") files.push_back(entry.path());
  }
  if (files.empty()) throw std::runtime_error(folder + ": no *.ptx there");
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    detail::parse(impl_->module, text.str(), file.string());
  }
  impl_->index();
}

Program::Program(const std::string& text, const std::string& name)
    : impl_(std::make_unique<Impl>()) {
  detail::parse(impl_->module, text, name);
  impl_->index();
}

Program::~Program() = default;

// An unnamed namespace is 12_GLOBAL__N_1 by the host's compiler, LENGTH_GLOBAL__N__HASH_FILE_HASH
// by nvcc.
std::string Program::kernel_name(const std::string& mangled) {
  static const std::string kUnnamed = "_GLOBAL__N_";
  std::string out;
  std::size_t from = 0;
  for (std::size_t at; (at = mangled.find(kUnnamed, from)) != std::string::npos;) {
    std::size_t digits = at;
    while (digits > from && std::isdigit(static_cast<unsigned char>(mangled[digits - 1])) != 0)
      --digits;
    const std::string length = mangled.substr(digits, at - digits);
    out += mangled.substr(from, digits - from) + "12_GLOBAL__N_1";
    from = at + (length.empty() ? kUnnamed.size() : std::stoul(length));
  }
  return out + mangled.substr(std::min(from, mangled.size()));
}

bool Program::has(const std::string& kernel) const { return impl_->kernels.contains(kernel); }

Outcome Program::run(const std::string& kernel, const Launch& launch, GlobalMemory& memory,
                     const Options& options) {
  detail::Function& function = *impl_->kernels.at(kernel);
  detail::Block block;
  block.module = &impl_->module;
  block.memory = &memory;
  block.options = options;
  block.random.seed(options.seed);
  try {
    block.parameters = detail::place_arguments(function, launch);
    const std::size_t fixed = (function.shared_bytes + 127u) / 128u * 128u;
    block.shared.resize(fixed + launch.shared_bytes);
    block.shared_states.resize(block.shared.size());
    const std::uint32_t threads = launch.block.x * launch.block.y * launch.block.z;
    std::vector<detail::Frame> frames((threads + detail::kLanes - 1) / detail::kLanes,
                                      detail::Frame(function));
    for (std::uint32_t i = 0; i < frames.size(); ++i) detail::identify(frames[i], launch, i);
    const Extent& grid = launch.grid;
    for (const std::uint64_t number :
         detail::ordered(std::uint64_t{grid.x} * grid.y * grid.z, block)) {
      block.index = {static_cast<std::uint32_t>(number % grid.x),
                     static_cast<std::uint32_t>(number / grid.x % grid.y),
                     static_cast<std::uint32_t>(number / grid.x / grid.y)};
      detail::run_block(block, frames, launch);
    }
  } catch (const detail::Fail& f) {
    return {f.fault, kernel + ": " + f.message};
  }
  return {};
}

std::vector<Coverage> Program::coverage() const {
  std::vector<Coverage> out;
  for (const auto& [name, function] : impl_->module.functions) {
    Coverage c;
    c.kernel = kernel_name(name);
    for (const detail::Instruction& in : function->code) {
      if (in.text.empty()) continue;  // the end of a function
      c.instructions.push_back(in.text);
      c.executed.push_back(in.executed);
    }
    out.push_back(std::move(c));
  }
  return out;
}

std::vector<std::string> Program::kernels() const {
  std::vector<std::string> out;
  for (const auto& [name, function] : impl_->kernels) out.push_back(name);
  return out;
}

}  // namespace tf_ptx
