# Options every target of the project is built with.
add_library(triforce_flags INTERFACE)
target_compile_features(triforce_flags INTERFACE cxx_std_20)
target_include_directories(triforce_flags INTERFACE ${PROJECT_SOURCE_DIR}/include)
set(options -Wall -Wextra -Wshadow -Wconversion $<$<BOOL:${TRIFORCE_WERROR}>:-Werror>
  # gcc 12 sees overlap in std::string concatenation (GCC bug 105651); clang lacks some names.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<CXX_COMPILER_ID:Clang>:-Wno-unknown-warning-option>
  # gcc need not look for memory to give back before it holds half a GiB: a twentieth of its time.
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>
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
target_link_libraries(triforce_flags INTERFACE fmt::fmt OpenMP::OpenMP_CXX)

# tf_precompiled(target options headers...): headers that targets with the same options parse once,
# by target_precompile_headers(... REUSE_FROM target).
function(tf_precompiled name options)
  file(CONFIGURE OUTPUT ${name}.cpp CONTENT "// CMake wants a source beside the headers.\n")
  add_library(${name} STATIC ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_precompile_headers(${name} PRIVATE ${ARGN} <algorithm> <array> <chrono> <cmath> <cstdint>
    <cstring> <filesystem> <fstream> <functional> <limits> <map> <memory> <optional> <set> <span>
    <string> <string_view> <thread> <utility> <vector> <fmt/format.h>)
  target_link_libraries(${name} PRIVATE triforce_flags)
  target_compile_options(${name} PRIVATE ${options})
endfunction()

# tf_use_precompiled(target precompiled): headers of tf_precompiled. gcc no longer knows then that they
# are the system's, and sees GCC bug 105651 in them.
function(tf_use_precompiled name precompiled)
  target_precompile_headers(${name} REUSE_FROM ${precompiled})
  foreach(warning array-bounds stringop-overflow stringop-overread)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-${warning}>)
  endforeach()
endfunction()

# OPTIMISED: what tests and measurements spend their time in; -O2 in Debug builds, the build type's own
# level in others. The rest, at -Og there, compiles in half the time: nothing waits for it.
set(TF_OPTIMISED $<$<AND:$<CONFIG:Debug>,$<COMPILE_LANGUAGE:CXX>>:-O2>)
set(TF_USUAL $<$<AND:$<NOT:$<CONFIG:Debug>>,$<COMPILE_LANGUAGE:CXX>>:-Og>)
if(TRIFORCE_PCH)
  tf_precompiled(triforce_pch ${TF_USUAL})
  tf_precompiled(triforce_optimised_pch ${TF_OPTIMISED})
endif()

# tf_library(name [OPTIMISED] SOURCES ... [UNHURRIED ...] LINK ... [PRIVATE_LINK ...]): one static library
# per layer. UNHURRIED are sources of an OPTIMISED library that nothing waits for. They are a target of
# their own, NAME_unhurried: a precompiled header belongs to one level.
function(tf_library name)
  cmake_parse_arguments(ARG "OPTIMISED" "" "SOURCES;UNHURRIED;LINK;PRIVATE_LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC triforce_flags ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
  if(ARG_OPTIMISED)
    tf_compiled(${name} triforce_optimised_pch ${TF_OPTIMISED})
  else()
    tf_compiled(${name} triforce_pch ${TF_USUAL})
  endif()
  if(ARG_UNHURRIED)
    add_library(${name}_unhurried OBJECT ${ARG_UNHURRIED})
    target_link_libraries(${name}_unhurried PRIVATE triforce_flags ${ARG_LINK} ${ARG_PRIVATE_LINK})
    tf_compiled(${name}_unhurried triforce_pch ${TF_USUAL})
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${name}_unhurried>)
  endif()
endfunction()

# tf_compiled(target precompiled level): how sources of a library are compiled.
function(tf_compiled name precompiled level)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${name} PRIVATE ${level})
  if(TRIFORCE_PCH)
    tf_use_precompiled(${name} ${precompiled})
  endif()
endfunction()

# tf_test(name [OPTIMISED] SOURCES ... LINK ... [TIMEOUT seconds] [LABELS ...] [ARGS ...]
# [EXHAUSTIVE ...]): one GoogleTest binary, one ctest entry. TF_SOURCE_DIR is the root of the project,
# for test data. EXHAUSTIVE cases repeat much the same many times: they are left out where each
# instruction costs many, under sanitizers and in qemu.
function(tf_test name)
  cmake_parse_arguments(ARG "OPTIMISED" "TIMEOUT" "SOURCES;LINK;LABELS;ARGS;EXHAUSTIVE" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set(all)
  if(TRIFORCE_SANITIZE AND slow IN_LIST ARG_LABELS)
    set(all EXCLUDE_FROM_ALL)  # scripts/check.sh does not run them there
  endif()
  add_executable(${name} ${all} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE TF_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE triforce_flags ${ARG_LINK} GTest::gtest_main)
  if(ARG_OPTIMISED)
    target_compile_options(${name} PRIVATE ${TF_OPTIMISED})
  elseif(TRIFORCE_PCH)
    tf_use_precompiled(${name} triforce_test_pch)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
  if(ARG_EXHAUSTIVE AND (TRIFORCE_SANITIZE OR CMAKE_CROSSCOMPILING))
    list(JOIN ARG_EXHAUSTIVE ":" cases)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "GTEST_FILTER=-${cases}")
  endif()
endfunction()

# tf_embed(name source): data/NAME.json becomes kNameJson of NAME_json.h, a text of the program, which then
# needs no file of it. Only that source sees it.
function(tf_embed name source)
  set(path ${PROJECT_SOURCE_DIR}/data/${name}.json)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} text)
  string(SUBSTRING ${name} 0 1 first)
  string(TOUPPER ${first} first)
  string(SUBSTRING ${name} 1 -1 rest)
  file(CONFIGURE OUTPUT ${name}_json.h @ONLY CONTENT [[
// The build made this of data/@name@.json.
inline constexpr char k@first@@rest@Json[] = R"json(@text@)json";
]])
  set_source_files_properties(${source} PROPERTIES INCLUDE_DIRECTORIES ${CMAKE_CURRENT_BINARY_DIR})
endfunction()
