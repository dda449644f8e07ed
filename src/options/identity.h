// Which results may be compared: two identities of a case.
#pragma once
#include <string>

#include "host/session.h"
#include "triforce/case_rules.h"
#include "triforce/report.h"

namespace triforce {

// The configuration with what `auto` came to in its place: dtype, device, threads, instruction
// level. Results echo this one.
RunConfig resolved(RunConfig config, const Session& session);

// 16 hex digits over what decides the tokens and counters of a case: the options of its method
// whose role says so (options.h), gammas as they were used, digests of weights, tokenizer and data,
// dtype and instruction level, with which bits may differ. Not over threads, repetitions, limits,
// paths as typed or what else was measured. Reads method, params, target, draft, data, gammas and
// memory of `c`.
std::string case_id_of(const CaseResult& c, const ResultContext& context);
// What that is the beginning of the SHA-256 of: lines "name=value". Without the params in
// `left_out`.
std::string case_key_of(const CaseResult& c, const ResultContext& context,
                        const ParamNames& left_out = {});

// Whether an option, named as in params, is among those; false for what is unknown.
bool decides_tokens(std::string_view param, const std::string& method);

// Whether a param of a case is as in a run of the same models without options: of the built-in pair
// or of others, whose defaults differ. False for what is unknown.
bool is_default(const Param& param, const CaseResult& c);

// Whether a param has a column in a CSV: not one that says only what is written, and where.
bool is_column(std::string_view param);

// case_id with what decides its times too: threads, processor or GPU, backend. Reads case_id.
std::string timing_id_of(const CaseResult& c, const ResultContext& context);

}  // namespace triforce
