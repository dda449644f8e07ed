#include "host/build_info.h"

#include "build_commit.h"

namespace triforce {

BuildInfo build_info() {
  BuildInfo info{TRIFORCE_VERSION, std::nullopt, std::nullopt, TRIFORCE_BUILD_TYPE,
                 TRIFORCE_COMPILER};
  const std::string commit = TRIFORCE_COMMIT;
  if (!commit.empty()) {
    info.commit = commit;
    info.dirty = TRIFORCE_DIRTY != 0;
  }
  return info;
}

}  // namespace triforce
