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
// Prints one line on stderr: "triforce-bench: error: " and the parts, one after the other. Line
// ends become spaces; other control characters and malformed UTF-8, which names of files may hold,
// are escaped. Never throws and never allocates.
void print_error(std::initializer_list<std::string_view> parts);
inline void print_error(std::string_view message) { print_error({message}); }
// Returns what report_current_exception() prints of an error. Bad input is shown with its class.
std::string error_text(const Error& e);
// Prints as print_error(), but without "error: ".
void print_note(std::string_view message);
// Writes text as it is to `fd`, which is stderr or stands for it. The text may be lost without
// harm. Never throws.
void write_quietly(int fd, std::string_view text);

}  // namespace triforce
