// What tests of the interpreter share: small kernels, a block of them, one allocation.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "ptx.h"

namespace tf_ptx {

inline constexpr std::uint32_t kWarp = 32;

// One allocation.
class Memory final : public GlobalMemory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {}
  bool may_use(std::uintptr_t address, std::size_t bytes, bool) override {
    const std::uintptr_t at = address - this->address();
    return at < bytes_.size() && bytes <= bytes_.size() - at;
  }
  std::string describe(std::uintptr_t) override { return "nobody's memory"; }
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(bytes_.data()); }
  template <class T>
  std::vector<T> as() const {
    std::vector<T> out(bytes_.size() / sizeof(T));
    std::memcpy(out.data(), bytes_.data(), out.size() * sizeof(T));
    return out;
  }
  template <class T>
  void put(const std::vector<T>& values) {
    std::memcpy(bytes_.data(), values.data(), values.size() * sizeof(T));
  }

 private:
  std::vector<std::byte> bytes_;
};

// A kernel of one parameter, `memory`: %t is the thread's number, %m the address, %at that of the
// thread's 4 bytes, %out what is stored there at the end.
inline std::string kernel(const std::string& body) {
  return R"(.version 9.0
.target sm_90
.address_size 64
.extern .shared .align 128 .b8 arena[];
.visible .entry test(
	.param .u64 memory
)
.maxntid 1024
{
	.reg .pred 	%p<10>;
	.reg .b16 	%h<10>;
	.reg .b32 	%t, %out, %r<20>;
	.reg .f32 	%f<20>;
	.reg .b64 	%m, %at, %o, %d<10>;
	ld.param.u64 	%m, [memory];
	mov.u32 	%t, %tid.x;
	mul.wide.u32 	%o, %t, 4;
	add.s64 	%at, %m, %o;
	mov.u32 	%out, 0;
)" + body +
         R"(
	st.global.u32 	[%at], %out;
	ret;
}
)";
}

// One block of such a kernel.
inline Outcome launch(Program& program, Memory& memory, const Options& options = {},
                      std::uint32_t threads = kWarp, std::size_t shared_bytes = 0) {
  const std::uintptr_t address = memory.address();
  Launch shape;
  shape.block.x = threads;
  shape.shared_bytes = shared_bytes;
  shape.arguments = {std::as_bytes(std::span(&address, 1))};
  return program.run("test", shape, memory, options);
}

struct Ran {
  Outcome outcome;
  std::vector<std::uint32_t> out;  // a thread
};

inline Ran run(const std::string& body, Options options = {}, std::uint32_t threads = kWarp,
               const std::vector<std::uint32_t>& before = {}, std::size_t shared_bytes = 4096) {
  Program program(kernel(body), "test.ptx");
  Memory memory(4 * std::size_t{threads});
  memory.put(before);
  Ran ran;
  ran.outcome = launch(program, memory, options, threads, shared_bytes);
  ran.out = memory.as<std::uint32_t>();
  return ran;
}

inline std::uint32_t value(const std::string& body) {
  const Ran ran = run(body);
  EXPECT_EQ(ran.outcome.message, "") << body;
  return ran.out.at(0);
}
inline std::uint32_t of_float(float f) { return std::bit_cast<std::uint32_t>(f); }

}  // namespace tf_ptx
