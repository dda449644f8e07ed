# Options every target of the project is built with.
add_library(triforce_flags INTERFACE)
target_compile_features(triforce_flags INTERFACE cxx_std_20)
target_include_directories(triforce_flags INTERFACE ${PROJECT_SOURCE_DIR}/include)
set(options -Wall -Wextra -Wshadow -Wconversion $<$<BOOL:${TRIFORCE_WERROR}>:-Werror>
  # gcc 12 sees overlap in std::string concatenation (GCC bug 105651); clang lacks some names.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<CXX_COMPILER_ID:Clang>:-Wno-unknown-warning-option>
  # Bits must not depend on which expressions a compiler chooses to fuse.
  -ffp-contract=off)
foreach(sanitizer IN LISTS TRIFORCE_SANITIZE)
  list(APPEND options -fsanitize=${sanitizer} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(triforce_flags INTERFACE -fsanitize=${sanitizer})
endforeach()
# nvcc has its own options; what it generates for the host does not meet -Wconversion.
target_compile_options(triforce_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${options}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-ffp-contract=off>"
  "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${TRIFORCE_WERROR}>>:-Werror=all-warnings>")
if(TRIFORCE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TRIFORCE_FUZZ needs clang, found ${CMAKE_CXX_COMPILER_ID}; use the preset asan")
  endif()
endif()
target_link_libraries(triforce_flags INTERFACE fmt::fmt)

# tf_library(name SOURCES ... LINK ... [PRIVATE_LINK ...]): one static library per layer.
function(tf_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC triforce_flags ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
endfunction()

# tf_test(name SOURCES ... LINK ... [TIMEOUT seconds] [LABELS ...]): one GoogleTest binary, one ctest
# entry. TF_SOURCE_DIR is the root of the project, for test data.
function(tf_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS;ARGS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE TF_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE triforce_flags ${ARG_LINK} GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
