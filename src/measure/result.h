// What identifies a result: its run, its cases, its tokens.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "triforce/report.h"

namespace triforce {

// SHA-256 of ids as little-endian 32-bit integers, hex.
std::string tokens_sha256(std::span<const Token> tokens);

// "20260131T120000Z-1a2b3c4d": start of the run and a hash of the command line and `salt`.
std::string make_run_id(const ResultContext& context, const std::string& salt);

}  // namespace triforce
