// Failing a launch: from any depth of a kernel's code back to the host, with a message.
#pragma once
#include <cstdint>
#include <string>

#include "tf_emulator.h"

namespace tf_emulator::detail {

// Part of a message that owns no memory: the frames a trap leaves are never cleaned up.
struct ShortText {
  char text[256] = {};
};
ShortText short_text(const std::string& text);

// Ends the running launch; when no kernel runs, throws std::logic_error with the message.
[[noreturn]] void raise_trap(Trap kind, std::string what);

// A name of the linker's as the source has it.
std::string readable_name(const std::string& linker_name);
// Name of a function of this program by its address: as the linker has it, empty when it has none.
std::string linker_name(const void* address);
// The same for readers, "kernel at 0x..." when it has none.
std::string function_name(const void* address);

}  // namespace tf_emulator::detail
