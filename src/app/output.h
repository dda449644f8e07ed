// Everything the program prints goes through here, so that a full disk or a closed pipe is noticed.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "triforce/error.h"

namespace triforce {

// Call first: descriptors 0, 1 and 2 that the caller closed are opened, so that no file of ours
// gets their numbers. A closed standard output is remembered as one that cannot be written.
void secure_standard_streams();

// Throws Error(kResources): DiskFull, WriteError.
void print_out(std::string_view text);
// One line on stderr: "triforce-bench: error: " and the parts, one after the other. Line ends
// become spaces; other control characters and malformed UTF-8, which names of files may hold, are
// escaped. Never throws and never allocates.
void print_error(std::initializer_list<std::string_view> parts);
inline void print_error(std::string_view message) { print_error({message}); }
// What report_current_exception() prints of it: bad input with its class.
std::string error_text(const Error& e);
// The same as print_error() without "error: ".
void print_note(std::string_view message);
// As it is, to stderr or what stands for it: text that may be lost without harm. Never throws.
void write_quietly(int fd, std::string_view text);

}  // namespace triforce
