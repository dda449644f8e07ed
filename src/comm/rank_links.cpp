// Tests: tests/comm/rank_links_test.cpp
#include "comm/rank_links.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace triforce {
namespace {

// "TFD1", "TFF1", "TFA1"
constexpr std::uint32_t kData = 0x54464431, kFailure = 0x54464631, kAlive = 0x54464131;
// A wait is cut into these, so that time in which this process was stopped counts as one of them.
constexpr std::chrono::milliseconds kSlice{200};
// How long a rank that ends tries to tell the others.
constexpr std::chrono::milliseconds kFarewell{500};

template <std::size_t N>
void put_text(std::array<char, N>& to, const std::string& text) {
  const std::size_t n = std::min(N - 1, text.size());
  std::copy_n(text.begin(), n, to.begin());
  to[n] = 0;
}
template <std::size_t N>
std::string text_of(const std::array<char, N>& from) {
  return {from.begin(), std::find(from.begin(), from.end() - 1, '\0')};
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

RankLinks::RankLinks(const Shard& shard, std::vector<Descriptor> sockets,
                     std::chrono::milliseconds timeout)
    : shard_(shard), timeout_(timeout), limit_(timeout) {
  TF_CHECK(sockets.size() == static_cast<std::size_t>(shard.size), "{} sockets of {} ranks",
           sockets.size(), shard.size);
  for (int r = 0; r < shard.size; ++r) {
    Descriptor& socket = sockets[static_cast<std::size_t>(r)];
    TF_CHECK(static_cast<bool>(socket) == (r != shard.rank), "socket of rank {} at rank {}", r,
             shard.rank);
    if (r == shard.rank) continue;
    Link& link = links_.emplace_back();
    link.rank = r;
    link.socket = std::move(socket);
  }
  polled_.resize(links_.size());
}

void RankLinks::all_gather(std::span<std::byte> parts) { all_gather_within(timeout_, parts); }

void RankLinks::meet() {
  patient_ = true;
  meet(kPatience * timeout_);
  patient_ = false;
}

void RankLinks::meet(std::chrono::milliseconds limit) {
  std::vector<std::byte> here(static_cast<std::size_t>(shard_.size));
  all_gather_within(limit, here);
}

void RankLinks::alive() noexcept {
  if (error_ || Clock::now() - last_sign_ < kSlice) return;
  last_sign_ = Clock::now();
  const Header sign{kAlive, static_cast<std::uint32_t>(shard_.rank), operation_, 0};
  for (const Link& link : links_) {
    // Whole or not at all: a few bytes go into a socket that has room for a message.
    pollfd room{link.socket.get(), POLLOUT, 0};
    if (::poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0) continue;
    ::send(link.socket.get(), &sign, sizeof sign, MSG_NOSIGNAL);
  }
}

void RankLinks::all_gather_within(std::chrono::milliseconds limit, std::span<std::byte> parts) {
  const auto size = static_cast<std::size_t>(shard_.size);
  TF_CHECK(parts.size() % size == 0, "{} bytes of {} ranks", parts.size(), size);
  const std::size_t n = parts.size() / size;
  const auto part = [&](int rank) { return parts.subspan(static_cast<std::size_t>(rank) * n, n); };
  operation(limit, [&] {
    for (Link& link : links_) {
      send_to(link, part(shard_.rank));
      receive_from(link, part(link.rank));
    }
  });
}

void RankLinks::broadcast(std::span<std::byte> bytes) {
  operation(timeout_, [&] {
    for (Link& link : links_) {
      if (shard_.rank == 0) {
        send_to(link, bytes);
      } else if (link.rank == 0) {
        receive_from(link, bytes);
      }
    }
  });
}

template <class Body>
void RankLinks::operation(std::chrono::milliseconds limit, const Body& body) {
  if (error_) throw Error(*error_);
  limit_ = limit;
  ++operation_;
  for (Link& link : links_) link.silent = {};
  body();
  run();
}

void RankLinks::send_to(Link& link, std::span<const std::byte> bytes) {
  link.out = {
      {kData, static_cast<std::uint32_t>(shard_.rank), operation_, bytes.size()}, bytes, 0, true};
}

void RankLinks::receive_from(Link& link, std::span<std::byte> bytes) {
  link.in = {{}, bytes, 0, true};
}

void RankLinks::await_rank_0() {
  if (error_) throw Error(*error_);
  TF_CHECK(shard_.rank != 0, "rank 0 awaits itself");
  pollfd fd{links_.front().socket.get(), POLLIN, 0};
  while (::poll(&fd, 1, -1) < 0) {
    if (errno != EINTR) gone(links_.front());
  }
}

void RankLinks::check() {
  if (error_) throw Error(*error_);
  for (Link& link : links_) {
    Header next;
    const ssize_t n = ::recv(link.socket.get(), &next, sizeof next, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && !would_block())) gone(link);
    // Signs of life stay for the next operation, and no failure is seen behind one until then.
    if (n < ssize_t{sizeof next} || next.kind != kFailure) continue;
    // Its words are on their way, if it has not gone meanwhile: either is thrown.
    receive_from(link, {});
    while (!link.in.finished()) {
      if (!read_some(link)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

void RankLinks::outlast_rank_0(std::chrono::milliseconds limit) noexcept {
  const auto end = Clock::now() + limit;
  std::array<std::byte, 4096> rest;
  while (Clock::now() < end) {
    const ssize_t n = ::recv(links_.front().socket.get(), rest.data(), rest.size(), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && !would_block())) return;
    if (n < 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void RankLinks::run() {
  for (;;) {
    bool moved = true;
    while (moved) {
      moved = false;
      for (Link& link : links_) moved = advance(link) || moved;
    }
    if (std::ranges::all_of(links_, [](const Link& l) { return l.finished(); })) {
      break;
    }
    wait();
  }
  for (Link& link : links_) link.out = {}, link.in = {};
}

// Moves what can be moved at once; whether that was anything.
bool RankLinks::advance(Link& link) {
  bool moved = false;
  if (!link.deaf && !link.out.finished()) moved = write_some(link);
  if (!link.in.finished()) moved = read_some(link) || moved;
  // A rank that no longer reads may have said why.
  if (link.deaf && !link.in.active) receive_from(link, {});
  if (moved) link.silent = {};
  return moved;
}

bool RankLinks::write_some(Link& link) {
  auto& out = link.out;
  const std::size_t header = std::min(out.done, sizeof(Header)), body = out.done - header;
  std::array<iovec, 2> pieces{};
  pieces[0] = {reinterpret_cast<std::byte*>(&out.header) + header, sizeof(Header) - header};
  // sendmsg() only reads them.
  pieces[1] = {const_cast<std::byte*>(out.bytes.data()) + body, out.bytes.size() - body};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const ssize_t n = ::sendmsg(link.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) {
    link.deaf = !would_block();
    return false;
  }
  out.done += static_cast<std::size_t>(n);
  return n > 0;
}

bool RankLinks::read_some(Link& link) {
  auto& in = link.in;
  const bool header = in.done < sizeof(Header);
  std::byte* const to = header ? reinterpret_cast<std::byte*>(&in.header) + in.done
                               : in.bytes.data() + (in.done - sizeof(Header));
  const std::size_t left = sizeof(Header) + (header ? 0 : in.bytes.size()) - in.done;
  const ssize_t n = ::recv(link.socket.get(), to, left, MSG_DONTWAIT);
  if (n < 0 && would_block()) return false;
  if (n <= 0) gone(link);
  in.done += static_cast<std::size_t>(n);
  if (header && in.done == sizeof(Header)) {
    if (in.header.kind == kAlive && in.header.bytes == 0) {
      in.done = 0;
      return true;
    }
    check_header(link);
  }
  if (in.finished() && in.header.kind == kFailure) {
    broken({static_cast<ExitCode>(link.failure.code), text_of(link.failure.kind),
            fmt::format("rank {}: {}", link.rank, text_of(link.failure.message))});
  }
  return true;
}

void RankLinks::check_header(Link& link) {
  auto& in = link.in;
  if (in.header.kind == kFailure && in.header.bytes == sizeof(Failure)) {
    in.bytes = std::as_writable_bytes(std::span(&link.failure, 1));
    return;
  }
  if (in.header.kind == kData && in.header.operation == operation_ &&
      in.header.rank == static_cast<std::uint32_t>(link.rank) &&
      in.header.bytes == in.bytes.size()) {
    return;
  }
  if (link.deaf) gone(link);
  broken({ExitCode::kCommunication, "RankMismatch",
          fmt::format("rank {}: expected {} bytes of operation {}, found {} of {}", link.rank,
                      in.bytes.size(), operation_, in.header.bytes, in.header.operation)});
}

void RankLinks::check_waiting() {
  if (!patient_ || !check_) return;
  try {
    check_();
  } catch (...) {
    fail({ExitCode::kCommunication, "RankGone", "it no longer waits for the others"});
    throw;
  }
}

// Until one of the sockets can move something, or a slice has passed.
void RankLinks::wait() {
  check_waiting();
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const Link& link = links_[i];
    const bool writes = !link.deaf && !link.out.finished(), reads = !link.in.finished();
    const int events = (writes ? POLLOUT : 0) | (reads ? POLLIN : 0);
    polled_[i] = {events == 0 ? -1 : link.socket.get(), static_cast<short>(events), 0};
  }
  const auto begin = Clock::now();
  const int ready = ::poll(polled_.data(), polled_.size(), static_cast<int>(kSlice.count()));
  TF_CHECK(ready >= 0 || errno == EINTR, "poll: {}", std::strerror(errno));
  const auto passed =
      std::min(kSlice, std::chrono::ceil<std::chrono::milliseconds>(Clock::now() - begin));
  // One of several may only be waiting for another, and is about to say so.
  const auto waited_for =
      std::ranges::count_if(polled_, [](const pollfd& polled) { return polled.fd >= 0; });
  const auto patience = waited_for > 1 ? kFarewell : std::chrono::milliseconds{};
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    if (polled_[i].fd < 0 || polled_[i].revents != 0) continue;
    link.silent += passed;
    if (link.silent - patience < limit_) continue;
    broken({ExitCode::kCommunication, "RankSilent",
            fmt::format("rank {}: expected to hear of it within {:.3g} s, found silence", link.rank,
                        std::chrono::duration<double>(limit_).count())});
  }
}

void RankLinks::fail(const Error& error) noexcept {
  if (error_) return;  // the others have heard of that one
  error_.emplace(error);
  tell_others();
}

void RankLinks::broken(Error error) {
  error_.emplace(std::move(error));
  tell_others();
  throw Error(*error_);
}

// Sends error_ behind what is on its way: those who read get both within a moment.
void RankLinks::tell_others() noexcept {
  Failure failure;
  failure.code = static_cast<std::int32_t>(error_->code());
  put_text(failure.kind, error_->kind());
  put_text(failure.message, error_->what());
  for (Link& link : links_) {
    if (link.out.done == 0) link.out.active = false;
    link.told = false;
  }
  const auto end = Clock::now() + std::min(timeout_, kFarewell);
  for (bool all = false; !all && Clock::now() < end;) {
    all = true;
    for (Link& link : links_) {
      if (!link.deaf && link.out.finished() && !link.told) {
        link.out = {
            {kFailure, static_cast<std::uint32_t>(shard_.rank), operation_, sizeof(Failure)},
            std::as_bytes(std::span(&failure, 1)),
            0,
            true};
        link.told = true;
      }
      if (!link.deaf && !link.out.finished()) write_some(link);
      all = all && (link.deaf || (link.told && link.out.finished()));
    }
    if (!all) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (Link& link : links_) link.out = {}, link.in = {};
}

void RankLinks::gone(const Link& link) {
  broken({ExitCode::kCommunication, "RankGone",
          fmt::format("rank {}: expected it at operation {}, found that it has ended", link.rank,
                      operation_)});
}

}  // namespace triforce
