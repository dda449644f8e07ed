#include "sweep/workers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "triforce/format.h"

namespace triforce {
namespace {

using Clock = std::chrono::steady_clock;

// A message is a kind, a number and a text: case number, or exit code of a refusal.
constexpr char kStep = 's', kTold = 't', kRow = 'r', kRefusal = 'x';
struct MessageHeader {
  std::uint64_t kind = 0, number = 0, bytes = 0;  // no padding, which would cross the pipe
};
constexpr std::uint64_t kMaxText = std::uint64_t{1} << 30;

struct Message {
  char kind = 0;
  std::size_t number = 0;
  std::string text;
};

// Whole messages out of what has been read so far.
class MessageReader {
 public:
  void add(std::string_view bytes) { buffer_ += bytes; }
  std::optional<Message> next() {
    MessageHeader head;
    if (buffer_.size() < sizeof head) return std::nullopt;
    std::memcpy(&head, buffer_.data(), sizeof head);
    if (head.bytes > kMaxText || buffer_.size() - sizeof head < head.bytes) return std::nullopt;
    Message m{static_cast<char>(head.kind), head.number, buffer_.substr(sizeof head, head.bytes)};
    buffer_.erase(0, sizeof head + head.bytes);
    return m;
  }

 private:
  std::string buffer_;
};

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    const char* name = ::sigabbrev_np(signal);
    return fmt::format("its process was ended by signal {} ({})", signal,
                       name == nullptr ? "unknown" : fmt::format("SIG{}", name));
  }
  return fmt::format("its process ended with status {} before it had a result",
                     WEXITSTATUS(status));
}

// The end that is read, and the one that is written.
std::pair<Descriptor, Descriptor> open_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw_resources("PipeFailed", "a worker cannot be started: {}", std::strerror(errno));
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// A Worker is one process, and what has been heard of it.
class Worker {
 public:
  Worker(std::vector<std::size_t>& left, const WorkerHooks& hooks) : left_(left), hooks_(hooks) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { end_group(); }
  // Returns when it has ended; false: a stop was requested.
  bool run(std::chrono::milliseconds silence, std::chrono::milliseconds stop_limit) {
    constexpr int kPollMs = 50;
    start();
    std::optional<Clock::time_point> kill_at;
    bool ended = false, silent = false;
    while (!ended) {
      pollfd p{pipe_.get(), POLLIN, 0};
      const bool readable = ::poll(&p, 1, kPollMs) > 0;
      if (readable && !read_messages()) pipe_.reset();  // poll() takes a closed one for a pause
      ended = has_ended();                              // ranks of its may still hold the pipe
      const auto now = Clock::now();
      if (const std::optional<int> signal = hooks_.stop_signal(); signal && !kill_at) {
        kill_at = now + stop_limit;
        ::kill(-pid_, *signal);
      }
      silent = silence.count() > 0 && now - heard_ > silence;
      if (silent || (kill_at && now > *kill_at)) break;
    }
    const int status = end_group();
    while (ended && pipe_ && is_readable() && read_messages()) {
    }
    if (kill_at) return false;
    if (silent) {
      blame(ExitCode::kInconclusive,
            fmt::format("its process was silent for {} s and was ended",
                        std::chrono::duration_cast<std::chrono::seconds>(silence).count()));
    } else if (!left_.empty()) {
      const bool by_code = WIFEXITED(status) && WEXITSTATUS(status) != 0;
      blame(by_code ? static_cast<ExitCode>(WEXITSTATUS(status)) : ExitCode::kInternal,
            how_it_ended(status));
    }
    return true;
  }

 private:
  void start() {
    auto [read_end, write_end] = open_pipe();
    auto [taken_read, taken_write] = open_pipe();
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) {
      throw_resources("ForkFailed", "a worker cannot be started: {}", std::strerror(errno));
    }
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(0);  // it had ended before that
      ::setpgid(0, 0);
      read_end.reset();
      taken_write.reset();
      be(std::move(write_end), std::move(taken_read));
    }
    ::setpgid(pid_, pid_);  // whoever of the two comes first
    pipe_ = std::move(read_end);
    taken_ = std::move(taken_write);
    heard_ = Clock::now();
  }

  [[noreturn]] void be(Descriptor pipe, Descriptor taken) {
    WorkerReport report(std::move(pipe), std::move(taken));
    const ExitCode code = hooks_.measure(left_, report);
    ::_exit(static_cast<int>(code));  // what this process has of the other's is not its to end
  }

  // Reads what there is. false: the worker has closed its end.
  bool read_messages() {
    std::array<char, 65536> bytes{};
    const ssize_t n = ::read(pipe_.get(), bytes.data(), bytes.size());
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    reader_.add({bytes.data(), static_cast<std::size_t>(n)});
    while (const std::optional<Message> m = reader_.next()) take(*m);
    return n > 0;
  }

  void take(const Message& m) {
    heard_ = Clock::now();
    switch (m.kind) {
      case kStep:
        current_ = m.number;
        break;
      case kTold: {
        if (is_left(m.number)) hooks_.on_told(m.number, m.text);
        const char byte = 0;
        // Where it has ended meanwhile, nobody waits.
        while (::write(taken_.get(), &byte, 1) < 0 && errno == EINTR) {
        }
        break;
      }
      case kRow:
        if (!is_left(m.number)) break;
        finish(m.number);
        reported_ = true;
        hooks_.on_row(m.number, m.text);
        break;
      default: {
        const std::vector<std::size_t> all = std::exchange(left_, {});
        for (const std::size_t number : all) {
          hooks_.on_failure(number, static_cast<ExitCode>(m.number), m.text);
        }
      }
    }
  }

  void finish(std::size_t number) { std::erase(left_, number); }
  bool is_left(std::size_t number) const { return std::ranges::find(left_, number) != left_.end(); }
  bool is_readable() const {
    pollfd p{pipe_.get(), POLLIN, 0};
    return ::poll(&p, 1, 0) > 0;
  }

  // Its number is its own until end_group() has waited for it.
  bool has_ended() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid_;
  }

  // Kills what is left of it, ranks that outlive their leader too; how it ended, as waitpid() says.
  int end_group() {
    int status = 0;
    if (pid_ <= 0) return status;
    ::kill(-pid_, SIGKILL);
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

  // The case at work has failed, or all where none was. One that had rows to report leaves the
  // others to the next worker.
  void blame(ExitCode code, const std::string& reason) {
    std::vector<std::size_t> failed;
    if (current_ && is_left(*current_)) {
      failed = {*current_};
    } else if (!reported_) {
      failed = left_;
    }
    for (const std::size_t number : failed) {
      finish(number);
      hooks_.on_failure(number, code, reason);
    }
  }

  std::vector<std::size_t>& left_;
  const WorkerHooks& hooks_;
  pid_t pid_ = -1;
  Descriptor pipe_, taken_;
  MessageReader reader_;
  Clock::time_point heard_{};
  std::optional<std::size_t> current_;
  bool reported_ = false;  // a row
};

}  // namespace

void WorkerReport::send(char kind, std::size_t number, std::string_view text) {
  const MessageHeader head{static_cast<std::uint64_t>(kind), number, text.size()};
  std::string bytes(sizeof head, '\0');
  std::memcpy(bytes.data(), &head, sizeof head);
  write_all(pipe_.get(), bytes.append(text), "the pipe to the sweep");
}

void WorkerReport::step(std::size_t number) {
  constexpr std::chrono::milliseconds kInterval{100};
  const auto now = Clock::now();
  if (last_ == number && now - last_time_ < kInterval) return;
  last_ = number;
  last_time_ = now;
  send(kStep, number, {});
}

void WorkerReport::tell(std::size_t number, std::string_view text) {
  send(kTold, number, text);
  char byte = 0;
  while (::read(taken_.get(), &byte, 1) < 0 && errno == EINTR) {
  }
}

void WorkerReport::row(std::size_t number, std::string_view result) { send(kRow, number, result); }

void WorkerReport::refuse(ExitCode code, std::string_view reason) {
  send(kRefusal, static_cast<std::size_t>(code), reason);
}

void run_workers(std::vector<std::size_t> cases, const WorkerHooks& hooks,
                 std::chrono::milliseconds silence, std::chrono::milliseconds stop_limit) {
  while (!cases.empty() && !hooks.enough()) {
    Worker worker(cases, hooks);
    if (!worker.run(silence, stop_limit)) return;
  }
}

}  // namespace triforce
