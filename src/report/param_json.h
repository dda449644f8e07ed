// Parameters as a JSON object, for core/fields.h.
#pragma once
#include <string_view>
#include <vector>

#include "core/json_writer.h"
#include "core/strict_json.h"
#include "triforce/param.h"

namespace triforce {

void json_write(JsonWriter& out, const std::vector<Param>& params);
void json_read(const JsonView& at, std::vector<Param>& params);
void json_schema(JsonWriter& out, std::string_view description, const std::vector<Param>& any);

}  // namespace triforce
