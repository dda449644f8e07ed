// Two identities of a case tell which results may be compared.
#pragma once
#include <string>

#include "host/session.h"
#include "options/config.h"
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
// case_id_of() is the beginning of the SHA-256 of this text: lines "name=value", without the params
// in `left_out`.
std::string case_key_of(const CaseResult& c, const ResultContext& context,
                        const ParamNames& left_out = {});

// Returns whether an option, named as in params, is among those of a case. It is false for an
// unknown name or method.
bool decides_tokens(std::string_view param, const CaseResult& c);
// The same of some case of a method.
bool decides_tokens(std::string_view param, const MethodSpec& method);

// Returns whether a param of a case is as in a run of the same models without options. The built-in
// pair has other defaults than other models. It is false for an unknown param.
bool is_default(const Param& param, const CaseResult& c);

// Returns whether a param has a column in a CSV. One that says only what is written, and where, has
// none.
bool is_column(std::string_view param);

// case_id with what decides its times too: threads, processor or GPU, backend. Reads case_id.
std::string timing_id_of(const CaseResult& c, const ResultContext& context);

}  // namespace triforce
