#include "cuda/compute_cache.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "core/utf8.h"
#include "triforce/format.h"

namespace triforce::cuda {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// Whether files can be made in a folder, which is made first where it is not there.
bool can_write(fs::path folder) {
  std::error_code error;
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  return fs::is_directory(folder, error) && ::access(folder.c_str(), W_OK | X_OK) == 0;
}

}  // namespace

ComputeCache compute_cache() {
  ComputeCache cache{variable("CUDA_CACHE_PATH"), {}};
  const std::string home = variable("HOME");
  if (cache.folder.empty() && !home.empty()) cache.folder = home + "/.nv/ComputeCache";
  if (variable("CUDA_CACHE_DISABLE") == "1") {
    cache.problem = "CUDA_CACHE_DISABLE is 1: unset it";
  } else if (cache.folder.empty()) {
    cache.problem = "HOME is not set: set it, or CUDA_CACHE_PATH to a folder that can be written";
  } else if (!can_write(cache.folder)) {
    cache.problem =
        fmt::format("{} cannot be written: set CUDA_CACHE_PATH to a folder that can be written",
                    quote_text(cache.folder));
  }
  return cache;
}

}  // namespace triforce::cuda
