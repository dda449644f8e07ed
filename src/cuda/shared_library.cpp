#include "cuda/shared_library.h"

#include <dlfcn.h>

#include "triforce/format.h"

namespace triforce::cuda {

std::vector<std::string> library_names(const std::string& file, int cuda_major) {
  std::vector<std::string> names = {file};
  for (const std::string& folder :
       {std::string("/usr/local/cuda"), fmt::format("/usr/local/cuda-{}", cuda_major),
        std::string("/opt/cuda")}) {
    names.push_back(fmt::format("{}/lib64/{}", folder, file));
  }
  return names;
}

SharedLibrary SharedLibrary::open(std::span<const std::string> names,
                                  const std::function<bool(const SharedLibrary&)>& complete) {
  SharedLibrary library;
  for (const std::string& name : names) {
    library.handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library && complete(library)) return library;
  }
  return {};
}

void* SharedLibrary::symbol(const char* name) const { return dlsym(handle_, name); }

}  // namespace triforce::cuda
