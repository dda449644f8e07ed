// Parts of a result that measurement and printers share.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/strict_json.h"
#include "triforce/report.h"

namespace triforce {

// SHA-256 of ids as little-endian 32-bit integers, hex.
std::string tokens_sha256(std::span<const Token> tokens);

// "20260131T120000Z-1a2b3c4d": start of the run and a hash of the command line and `salt`.
std::string make_run_id(const ResultContext& context, const std::string& salt);

// The objects of the schema.
JsonValue context_to_json(const ResultContext& context);
JsonValue case_to_json(const CaseResult& c);

}  // namespace triforce
