// Bytes of host memory between ranks, over stream sockets.
#pragma once
#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/file.h"
#include "triforce/error.h"
#include "triforce/rank.h"

namespace triforce {

// One rank's ends of the sockets to all others. Every rank calls the same operations with the same
// sizes in the same order. Each throws
// - Error(kCommunication): "RankGone" (its socket closed), "RankSilent" (no byte of it for the
//   timeout, while it was waited for), "RankMismatch" (it is at another operation), naming the
//   rank;
// - the Error of a rank that called fail().
// After that the links are of no use, and every later operation throws the same again. Time in
// which this process itself was stopped does not count as a silence of others.
class RankLinks {
 public:
  // sockets[r] is connected to rank r; that of shard.rank itself is empty.
  RankLinks(const Shard& shard, std::vector<Descriptor> sockets, std::chrono::milliseconds timeout);

  const Shard& shard() const { return shard_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  // `parts`: size equal parts, of which this rank has set its own; those of the others come in.
  void all_gather(std::span<std::byte> parts);
  // `bytes` of all ranks become those of rank 0.
  void broadcast(std::span<std::byte> bytes);
  template <class T>
  void broadcast_value(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    broadcast(std::as_writable_bytes(std::span(&value, 1)));
  }
  // What each rank has called it with, in their order.
  template <class T>
  std::vector<T> gather_values(const T& own) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> values(static_cast<std::size_t>(shard_.size));
    values[static_cast<std::size_t>(shard_.rank)] = own;
    all_gather(std::as_writable_bytes(std::span(values)));
    return values;
  }
  // Returns when all ranks have come to it. What they do before it may take its time (devices are
  // opened, memory is taken, models are loaded): a rank is silent only after kPatience timeouts
  // without a sign of life.
  void meet();
  static constexpr int kPatience = 10;
  // The same after work of known length: within `limit`.
  void meet(std::chrono::milliseconds limit);
  // Tells those who wait at meet() that this rank is at work. Between operations; at most five
  // times a second, the other calls do nothing.
  void alive() noexcept;
  // `check` is called about five times a second while meet() without a limit waits; what it throws
  // ends the wait and the links.
  void check_at_meetings(std::function<void()> check) { check_ = std::move(check); }
  // On the other ranks: returns when rank 0 has begun an operation, however long that takes. Throws
  // as the operations if it is gone.
  void await_rank_0();
  // Throws if another rank is seen to have gone, or to have said that it fails; waits for nothing.
  // Between operations.
  void check();
  // After an error, on the other ranks: returns when rank 0 has gone too, or has not for `limit`. A
  // launcher would end it in the middle of its result for the first rank that ends.
  void outlast_rank_0(std::chrono::milliseconds limit) noexcept;
  // Tells the others why this rank takes no further part; not those that do not listen at once.
  // Between operations; one that throws has told them.
  void fail(const Error& error) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  // What goes before the bytes of an operation.
  struct Header {
    std::uint32_t kind = 0;
    std::uint32_t rank = 0;  // the sender
    std::uint64_t operation = 0, bytes = 0;
  };
  struct Failure {
    std::int32_t code = 0;
    std::array<char, 60> kind{};
    std::array<char, 960> message{};
  };
  // Header and bytes on their way, `done` of both together.
  template <class Byte>
  struct Message {
    Header header;
    std::span<Byte> bytes;
    std::size_t done = 0;
    bool active = false;
    bool finished() const { return !active || done == sizeof(Header) + bytes.size(); }
  };
  struct Link {
    int rank = 0;
    Descriptor socket;
    Message<const std::byte> out;
    Message<std::byte> in;
    std::chrono::milliseconds silent{0};
    Failure failure;    // what it said when it failed
    bool deaf = false;  // it no longer reads
    bool told = false;  // why this rank ends
    bool finished() const { return (deaf || out.finished()) && in.finished(); }
  };

  void all_gather_within(std::chrono::milliseconds limit, std::span<std::byte> parts);
  void check_waiting();
  void send_to(Link& link, std::span<const std::byte> bytes);
  void receive_from(Link& link, std::span<std::byte> bytes);
  // Completes what was begun on all links.
  void run();
  bool advance(Link& link);
  bool write_some(Link& link);
  bool read_some(Link& link);
  void check_header(Link& link);
  void wait();
  [[noreturn]] void broken(Error error);
  void tell_others() noexcept;
  [[noreturn]] void gone(const Link& link);
  template <class Body>
  void operation(std::chrono::milliseconds limit, const Body& body);

  Shard shard_;
  std::chrono::milliseconds timeout_;
  std::chrono::milliseconds limit_;  // of a silence during this operation
  std::vector<Link> links_;          // to all other ranks
  std::vector<pollfd> polled_;       // one for each
  std::uint64_t operation_ = 0;
  std::optional<Error> error_;  // what ended it
  bool patient_ = false;        // the operation is meet() without a limit
  std::function<void()> check_;
  Clock::time_point last_sign_ = Clock::now();  // of alive()
};

}  // namespace triforce
