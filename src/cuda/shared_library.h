// Libraries of NVIDIA that are opened at run time, because a program should start without them.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace triforce::cuda {

// Names in which to look for `file`: as the system's loader finds it (LD_LIBRARY_PATH,
// ld.so.cache), then in the folders where the toolkit of CUDA 12 or 13 installs itself.
std::vector<std::string> library_names(const std::string& file, int cuda_major);

// A library that stays open until the process ends: what holds kernels is not made to be unloaded.
class SharedLibrary {
 public:
  // The first of `names` that can be loaded and for which `complete` is true; an empty one: none.
  static SharedLibrary open(std::span<const std::string> names,
                            const std::function<bool(const SharedLibrary&)>& complete);
  explicit operator bool() const { return handle_ != nullptr; }

  // Sets a pointer to a function; whether there is one of that name.
  template <class F>
  bool find(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(symbol(name));
    return function != nullptr;
  }

 private:
  void* symbol(const char* name) const;
  void* handle_ = nullptr;
};

}  // namespace triforce::cuda
