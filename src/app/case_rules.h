// The tables of options and methods as rules of cases, for compare and export.
#pragma once
#include "triforce/case_rules.h"

namespace triforce {

const CaseRules& case_rules();

}  // namespace triforce
