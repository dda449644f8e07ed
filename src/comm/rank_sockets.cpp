// Tests: tests/comm/rank_sockets_test.cpp
#include "comm/rank_sockets.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <string>

#include "core/sha256.h"
#include "triforce/error.h"

namespace triforce {
namespace {

using Clock = std::chrono::steady_clock;
using Secret = std::array<std::byte, 16>;
constexpr std::size_t kAddresses = 8;

// What each rank tells all others before they are connected.
struct Greeting {
  std::array<char, 65> machine{};  // a digest
  std::array<char, 65> devices{};  // of CUDA_VISIBLE_DEVICES, on that machine
  cpu_set_t cpus{};
  Secret asks{}, answers{};  // which the caller shows, and the called
  std::uint16_t port = 0;
  std::uint16_t count = 0;
  std::array<in6_addr, kAddresses> addresses{};  // IPv4 ones mapped
};
// Of a caller; the called answers with its own.
struct Hello {
  std::int32_t rank = 0;
  Secret secret{};
};

[[noreturn]] void throw_no_socket(const char* what) {
  throw_resources("OpenFailed", "sockets between ranks: {}: {}", what, std::strerror(errno));
}

in6_addr mapped(const in_addr& v4) {
  in6_addr all{};
  all.s6_addr[10] = all.s6_addr[11] = 0xff;
  std::memcpy(&all.s6_addr[12], &v4, sizeof v4);
  return all;
}

// A socket address of either family, as calls of the system take it.
struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};
SocketAddress socket_address(const in6_addr& address, std::uint16_t port) {
  SocketAddress a;
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, &address.s6_addr[12], sizeof v4.sin_addr);
    std::memcpy(&a.bytes, &v4, a.size = sizeof v4);
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    v6.sin6_addr = address;
    std::memcpy(&a.bytes, &v6, a.size = sizeof v6);
  }
  return a;
}

Descriptor tcp_socket(int family) {
  return Descriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Listens on every address; sets the port.
Descriptor listen_everywhere(std::uint16_t& port) {
  Descriptor socket = tcp_socket(AF_INET6);
  const int both = 0;
  in6_addr any = in6addr_any;
  if (!socket) {
    socket = tcp_socket(AF_INET);
    any = mapped({INADDR_ANY});
  } else if (::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both) != 0) {
    throw_no_socket("IPv4 beside IPv6");
  }
  if (!socket) throw_no_socket("TCP");
  SocketAddress address = socket_address(any, 0);
  if (::bind(socket.get(), address.get(), address.size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.bytes), &address.size) !=
          0) {
    throw_no_socket("listen");
  }
  // The port stands at the same place in both families.
  port = ntohs(reinterpret_cast<const sockaddr_in*>(&address.bytes)->sin_port);
  return socket;
}

// The addresses by which other machines may reach this one.
void add_addresses(Greeting& g) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw_no_socket("the addresses of this machine");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = list; i != nullptr && g.count < kAddresses; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family) continue;
      if ((i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) continue;
      in6_addr address{};
      if (family == AF_INET) {
        address = mapped(reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr);
      } else {
        address = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr;
        if (IN6_IS_ADDR_LINKLOCAL(&address)) continue;
      }
      g.addresses[g.count++] = address;
    }
  }
}

void put_digest(std::array<char, 65>& to, const std::string& text) {
  sha256_hex(text).copy(to.data(), to.size() - 1);
}

Greeting make_greeting(std::uint16_t port) {
  Greeting g;
  // Containers of one machine have its boot in common, but not its devices.
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  put_digest(g.machine, boot + host.data());
  put_digest(g.devices, boot + host.data() + '\n' + (visible == nullptr ? "all" : visible));
  ::sched_getaffinity(0, sizeof g.cpus, &g.cpus);
  if (::getentropy(g.asks.data(), g.asks.size()) != 0 ||
      ::getentropy(g.answers.data(), g.answers.size()) != 0) {
    throw_no_socket("random bytes");
  }
  g.port = port;
  add_addresses(g);
  return g;
}

// Whether the descriptor is ready for `events` by `end`.
bool wait_for(const Descriptor& socket, short events, Clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd fd{socket.get(), events, 0};
    const int n = ::poll(&fd, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
    if (n > 0) return true;
    if (left <= 0) return false;
    if (n < 0 && errno != EINTR) return false;
  }
}

bool send_all(const Descriptor& socket, const Hello& hello) {
  // Less than any buffer of a new socket.
  return ::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) == ssize_t{sizeof hello};
}

bool receive_all(const Descriptor& socket, Hello& hello, Clock::time_point end) {
  std::size_t done = 0;
  while (done < sizeof hello) {
    if (!wait_for(socket, POLLIN, end)) return false;
    const ssize_t n = ::recv(socket.get(), reinterpret_cast<std::byte*>(&hello) + done,
                             sizeof hello - done, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
    done += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
  return true;
}

// Calls and answers wait for nobody else: a moment is enough.
constexpr std::chrono::seconds kTalk{5};

// Connects the ranks of one run.
class Connector {
 public:
  Connector(const Shard& shard, std::vector<Greeting> greetings, Descriptor listener,
            std::chrono::milliseconds limit)
      : shard_(shard),
        greetings_(std::move(greetings)),
        listener_(std::move(listener)),
        limit_(limit),
        end_(Clock::now() + limit),
        sockets_(greetings_.size()) {}

  // Calls the ranks before it, is called by those after it.
  std::vector<Descriptor> run() {
    for (int r = 0; r < shard_.rank; ++r) at(r) = call(r);
    for (int left = shard_.size - 1 - shard_.rank; left > 0;) left -= answer() ? 1 : 0;
    for (const Descriptor& socket : sockets_) {
      const int now = 1;
      if (socket) ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
    }
    return std::move(sockets_);
  }

 private:
  Descriptor& at(int rank) { return sockets_[static_cast<std::size_t>(rank)]; }
  const Greeting& own() const { return greetings_[static_cast<std::size_t>(shard_.rank)]; }

  Descriptor call(int rank) {
    const Greeting& g = greetings_[static_cast<std::size_t>(rank)];
    if (g.machine == own().machine) {
      if (Descriptor socket = call_at(rank, mapped({htonl(INADDR_LOOPBACK)}))) return socket;
    }
    for (std::size_t i = 0; i < g.count; ++i) {
      if (Descriptor socket = call_at(rank, g.addresses[i])) return socket;
    }
    throw Error(ExitCode::kCommunication, "RankUnreachable",
                fmt::format("rank {}: expected an answer from port {} at one of the {} addresses "
                            "of its machine, found none",
                            rank, g.port, g.count));
  }

  // Empty if nobody answers there, or somebody else.
  Descriptor call_at(int rank, const in6_addr& address) {
    const Greeting& g = greetings_[static_cast<std::size_t>(rank)];
    const SocketAddress to = socket_address(address, g.port);
    Descriptor socket = tcp_socket(to.bytes.ss_family);
    if (!socket) return {};
    const Clock::time_point talk = std::min(end_, Clock::now() + kTalk);
    if (::connect(socket.get(), to.get(), to.size) != 0 && errno != EINPROGRESS) return {};
    if (!wait_for(socket, POLLOUT, talk) || !send_all(socket, {shard_.rank, g.asks})) return {};
    // It answers once it has been answered itself by those before it.
    Hello answer;
    if (!receive_all(socket, answer, end_)) return {};
    return answer.rank == rank && answer.secret == g.answers ? std::move(socket) : Descriptor();
  }

  // Whether a rank was connected; strangers are hung up on.
  bool answer() {
    if (!wait_for(listener_, POLLIN, end_)) {
      const int missing =
          static_cast<int>(std::find_if(sockets_.begin() + shard_.rank + 1, sockets_.end(),
                                        [](const Descriptor& s) { return !s; }) -
                           sockets_.begin());
      throw Error(ExitCode::kCommunication, "RankUnreachable",
                  fmt::format("rank {}: expected to be called by it within {:.3g} s, found silence",
                              missing, std::chrono::duration<double>(limit_).count()));
    }
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    Hello hello;
    if (!socket || !receive_all(socket, hello, std::min(end_, Clock::now() + kTalk))) return false;
    if (hello.secret != own().asks || hello.rank <= shard_.rank || hello.rank >= shard_.size ||
        at(hello.rank) || !send_all(socket, {shard_.rank, own().answers})) {
      return false;
    }
    at(hello.rank) = std::move(socket);
    return true;
  }

  Shard shard_;
  std::vector<Greeting> greetings_;
  Descriptor listener_;
  std::chrono::milliseconds limit_;
  Clock::time_point end_;
  std::vector<Descriptor> sockets_;
};

LocalRank find_local(const std::vector<Greeting>& greetings, const Shard& shard) {
  const Greeting& own = greetings[static_cast<std::size_t>(shard.rank)];
  LocalRank local{0, 0, 0};
  for (int r = 0; r < shard.size; ++r) {
    const Greeting& g = greetings[static_cast<std::size_t>(r)];
    if (g.devices == own.devices) {
      local.device += r < shard.rank ? 1 : 0;
      ++local.devices;
    }
    if (g.machine == own.machine && CPU_EQUAL(&g.cpus, &own.cpus)) ++local.on_cpus;
  }
  return local;
}

}  // namespace

std::vector<std::vector<Descriptor>> connect_ranks(int size) {
  const auto n = static_cast<std::size_t>(size);
  std::vector<std::vector<Descriptor>> sockets(n);
  for (auto& of_rank : sockets) of_rank.resize(n);
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      std::array<int, 2> pair{};
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
        throw_resources("OpenFailed", "sockets between {} ranks: {}", size, std::strerror(errno));
      }
      sockets[a][b] = Descriptor(pair[0]);
      sockets[b][a] = Descriptor(pair[1]);
    }
  }
  return sockets;
}

Connected connect_started_ranks(const Shard& shard, const GatherParts& gather,
                                std::chrono::milliseconds limit) {
  std::uint16_t port = 0;
  Descriptor listener = listen_everywhere(port);
  std::vector<Greeting> greetings(static_cast<std::size_t>(shard.size));
  greetings[static_cast<std::size_t>(shard.rank)] = make_greeting(port);
  gather(std::as_writable_bytes(std::span(greetings)));
  Connected connected;
  connected.local = find_local(greetings, shard);
  std::set<std::string> machines;
  for (const Greeting& g : greetings) machines.emplace(g.machine.data());
  connected.machines = static_cast<int>(machines.size());
  connected.sockets = Connector(shard, std::move(greetings), std::move(listener), limit).run();
  return connected;
}

}  // namespace triforce
