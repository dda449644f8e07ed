// What this binary was built from.
#pragma once
#include <optional>
#include <string>

namespace triforce {

struct BuildInfo {
  std::string version;
  std::optional<std::string> commit;  // none: not built from a git work tree
  std::optional<bool> dirty;          // tracked files differed from the commit
  std::string build_type, compiler;
};
BuildInfo build_info();

}  // namespace triforce
