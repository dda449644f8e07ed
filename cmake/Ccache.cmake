# TRIFORCE_CCACHE: what was compiled before is not compiled again. A launcher that the user names
# (CMAKE_CXX_COMPILER_LAUNCHER) stays. Depend mode takes dependencies from the compiler, so that a first
# build does not run the preprocessor besides; without the sloppiness nothing that uses precompiled
# headers is kept. Paths below the project count from the build folder, so that folders of one depth share
# what they compile alike.
if(TRIFORCE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(TRIFORCE_CCACHE_PROGRAM ccache)
  if(TRIFORCE_CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${TRIFORCE_CCACHE_PROGRAM})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${TRIFORCE_CCACHE_PROGRAM})
    message(STATUS "ccache: ${TRIFORCE_CCACHE_PROGRAM} (TRIFORCE_CCACHE=OFF turns it off)")
  endif()
endif()
