// Why a model gave numbers that are not finite: looked for only after it did.
#pragma once
#include <string>

#include "options/models.h"

namespace triforce {

// "FOLDER: tensor NAME holds NaN or infinity" for the first such tensor of the checkpoint; empty if
// all of its values are finite, it has no files, or they cannot be read any more. Reads all of it.
std::string find_non_finite_tensor(const ModelChoice& model);

}  // namespace triforce
