# Writes OUT, a header with the commit of SOURCE_DIR; run at every build, touches OUT only when the
# commit changed. Without git, or outside a work tree of this project, the commit is empty.
set(commit "")
set(dirty 0)
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE_DIR} rev-parse HEAD
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(commit "")
  endif()
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE_DIR} --no-optional-locks status --porcelain
    --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    set(dirty 1)
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT
"#define TRIFORCE_COMMIT \"${commit}\"
#define TRIFORCE_DIRTY ${dirty}
")
