# TRIFORCE_CUDA: OFF no CUDA; ON with the toolkit, an error when there is none; AUTO as ON where there
# are both a toolkit and a card, else OFF; EMULATED the same sources compiled by the host compiler
# against tests/cuda_emulator, for tests without a card.
set(TRIFORCE_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON, OFF or EMULATED")
set_property(CACHE TRIFORCE_CUDA PROPERTY STRINGS AUTO ON OFF EMULATED)
set(TF_CUDA_MODE ${TRIFORCE_CUDA})

if(TF_CUDA_MODE STREQUAL AUTO)
  set(TF_CUDA_MODE OFF)
  if(EXISTS /dev/nvidiactl OR EXISTS /dev/dxg)
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      set(TF_CUDA_MODE ON)
    endif()
  endif()
elseif(NOT TF_CUDA_MODE MATCHES "^(ON|OFF|EMULATED)$")
  message(FATAL_ERROR "TRIFORCE_CUDA is '${TRIFORCE_CUDA}', expected AUTO, ON, OFF or EMULATED")
endif()
message(STATUS "CUDA: ${TF_CUDA_MODE}")

if(TF_CUDA_MODE STREQUAL ON)
  # Machine code of every card from the A100 on as far as the toolkit knows them, and PTX of 9.0 for
  # those after.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(TF_CUDA_ARCHITECTURES 80-real 86-real 89-real 90)
    set(CMAKE_CUDA_ARCHITECTURES ${TF_CUDA_ARCHITECTURES})
  endif()
  enable_language(CUDA)
  if(TF_CUDA_ARCHITECTURES)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND TF_CUDA_ARCHITECTURES 100-real 120-real)
    else()
      message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} knows no Blackwell: such cards compile the "
                     "kernels when a program starts. From 12.8 on it does")
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${TF_CUDA_ARCHITECTURES})
  endif()
  find_package(CUDAToolkit 12 REQUIRED)
elseif(TF_CUDA_MODE STREQUAL EMULATED)
  # The loads and stores of kernels are checked, unless AddressSanitizer watches them instead, or each
  # instruction takes many in qemu.
  if(TRIFORCE_SANITIZE MATCHES "address|thread|memory" OR CMAKE_CROSSCOMPILING)
    set(TF_CUDA_INSTRUMENT OFF)
  else()
    set(TF_CUDA_INSTRUMENT ON)
    # Tests also execute what nvcc makes of the kernels (tests/cuda_ptx).
    find_program(TF_PTX_NVCC nvcc HINTS /usr/local/cuda/bin)
    if(NOT TF_PTX_NVCC)
      message(STATUS "No nvcc: the PTX of the kernels is not tested")
    endif()
  endif()
endif()

if(TF_CUDA_MODE)
  # Programs that travel (scripts/gpu_bundle.sh) find the libraries that travel with them, and so do
  # these libraries: unlike DT_RUNPATH, DT_RPATH also counts for what a library needs itself.
  set(CMAKE_INSTALL_RPATH "$ORIGIN/lib" "$ORIGIN/../lib")
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
  set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)  # the same where they are built
  add_link_options(LINKER:--disable-new-dtags)
endif()

# CMake 3.25 does not know that nvcc 13 has C++20. Products and sums are fused where the source says
# so and nowhere else: instances of a kernel must agree in every bit. fmt 9 takes nvcc for a compiler
# without constexpr.
set(TF_NVCC_OPTIONS -std=c++20 --expt-relaxed-constexpr -fmad=false -DFMT_USE_CONSTEXPR=1)

# tf_cuda_sources(target): how the target's .cu files are compiled, and what CUDA they see.
function(tf_cuda_sources target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  if(TF_CUDA_MODE STREQUAL ON)
    target_link_libraries(${target} PUBLIC CUDA::cudart_static)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:${TF_NVCC_OPTIONS};-lineinfo>")
    return()
  endif()
  target_link_libraries(${target} PUBLIC tf_cuda_emulator)
  set(options -Wno-unknown-pragmas -O2)
  if(TF_CUDA_INSTRUMENT)
    # ThreadSanitizer's instrumentation with the emulator as its run-time library. AddressSanitizer's
    # leaves out the check of a write that follows a read of the same place.
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      list(APPEND options -fsanitize=thread --param=tsan-instrument-func-entry-exit=0)
    else()
      list(APPEND options -fsanitize=thread -mllvm -tsan-instrument-func-entry-exit=0
        -mllvm -tsan-instrument-read-before-write=1 -mllvm -tsan-instrument-atomics=0)
    endif()
  endif()
  set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "${options}"
    SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# tf_cuda_library(name SOURCES .cu and .cpp ... LINK ...): as tf_library, for code that uses CUDA.
function(tf_cuda_library name)
  set(level "")
  if(TF_CUDA_MODE STREQUAL ON)
    set(level OPTIMISED)
  endif()
  tf_library(${name} ${level} ${ARGN})
  tf_cuda_sources(${name})
endfunction()

# tf_ptx_environment(test architecture name=value ...): a test executes PTX for an architecture on a
# device of it, with more variables of the emulator. It counts for the coverage of the label ptx.
function(tf_ptx_environment test architecture)
  set(folder ${PROJECT_BINARY_DIR}/ptx)
  string(REPLACE sm_ "" number ${architecture})
  set_tests_properties(${test} PROPERTIES LABELS ptx
    FIXTURES_REQUIRED ptx_begin_${architecture} FIXTURES_SETUP ptx_runs_${architecture}
    ENVIRONMENT "TF_EMULATOR_PTX=${folder}/${architecture};TF_EMULATOR_PTX_COVERAGE=${folder}/coverage_${architecture};TF_EMULATOR_ARCHITECTURE=${number};${ARGN}")
endfunction()

# tf_cuda_test(name SOURCES ... LINK ... [PTX]): as tf_test. On a real card it has the label gpu, and
# without one it is skipped (tests/cuda/needs_device.cpp). PTX: on the emulator the device is of sm_90.
# Where there is nvcc every launch is done twice, by the host body and by what nvcc made, and what they
# leave is compared.
function(tf_cuda_test name)
  cmake_parse_arguments(ARG "PTX" "" "" ${ARGN})
  tf_test(${name} ${ARG_UNPARSED_ARGUMENTS})
  if(ARG_PTX AND TF_PTX_NVCC)
    tf_ptx_environment(${name} sm_90 TF_EMULATOR_PTX_MODE=both)
  elseif(ARG_PTX AND TF_CUDA_MODE STREQUAL EMULATED)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT TF_EMULATOR_ARCHITECTURE=90)
  endif()
  tf_cuda_sources(${name})
  if(NOT TARGET triforce_cuda_tests)
    add_custom_target(triforce_cuda_tests)
  endif()
  add_dependencies(triforce_cuda_tests ${name})
  if(TF_CUDA_MODE STREQUAL ON)
    set_tests_properties(${name} PROPERTIES LABELS gpu
      SKIP_REGULAR_EXPRESSION "skipped without a CUDA device")
  endif()
endfunction()
