// What rooms that know no configuration are asked for on its behalf.
#pragma once
#include "forecast/published.h"
#include "host/session.h"
#include "options/config.h"

namespace triforce {

SessionOptions session_options(const RunConfig& config);

// A configuration without a drafter's name has the paper's where its target is a preset.
PublishedSetting published_setting(const RunConfig& config);

}  // namespace triforce
