# The system's packages first (scripts/setup.sh installs them); what is missing or too old is
# downloaded, pinned by SHA-256. CONTRIBUTING.md says why each is needed. A hash that is not known
# is not made up: such a dependency stops the configuration and names its package.
include(FetchContent)

# tf_fetch(NAME PACKAGES URL SHA256): builds a pinned release. Downloaded dependencies are static,
# without tests, and not held to our warnings. PACKAGES: what may be installed in its place. A source
# folder that the user names (FETCHCONTENT_SOURCE_DIR_<NAME>) takes the place of the download.
macro(tf_fetch name packages url sha256)
  string(TOUPPER ${name} tf_upper)
  set(tf_passed_over "none is installed")
  if(${name}_CONSIDERED_VERSIONS)
    set(tf_passed_over "version ${${name}_CONSIDERED_VERSIONS} will not do")
  endif()
  message(STATUS "${name}: ${tf_passed_over}, using the pinned release ${url}")
  set(tf_archive ${PROJECT_BINARY_DIR}/_deps/${sha256}.tar.gz)
  if(NOT FETCHCONTENT_SOURCE_DIR_${tf_upper} AND NOT FETCHCONTENT_FULLY_DISCONNECTED
     AND NOT EXISTS ${tf_archive})
    file(DOWNLOAD ${url} ${tf_archive}.part STATUS tf_status TLS_VERIFY ON)
    if(NOT tf_status MATCHES "^0;")
      list(GET tf_status 1 tf_reason)
      message(FATAL_ERROR "${name}: ${tf_passed_over}, and ${url} cannot be downloaded: "
        "${tf_reason}. Install a package that will do: ${packages}. Or unpack that release and give "
        "-DFETCHCONTENT_SOURCE_DIR_${tf_upper}=FOLDER to cmake.")
    endif()
    file(RENAME ${tf_archive}.part ${tf_archive})
  endif()
  FetchContent_Declare(${name} SYSTEM URL ${tf_archive} URL_HASH SHA256=${sha256})
  set(BUILD_SHARED_LIBS OFF)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)  # their option() and set(CACHE) respect the variables
  set(CMAKE_POLICY_DEFAULT_CMP0126 NEW)  # set below
  set(CMAKE_POLICY_DEFAULT_CMP0135 NEW)
  set(CMAKE_POLICY_VERSION_MINIMUM 3.5)  # CMake 4 refuses the older minima some of them name
  FetchContent_MakeAvailable(${name})
endmacro()

find_package(Threads REQUIRED)
find_package(OpenMP QUIET COMPONENTS CXX)
if(NOT OpenMP_CXX_FOUND)
  string(REGEX MATCH "^[0-9]+" tf_major "${CMAKE_CXX_COMPILER_VERSION}")
  message(FATAL_ERROR "OpenMP of ${CMAKE_CXX_COMPILER} was not found. Debian and Ubuntu: apt-get install "
    "libomp-${tf_major}-dev for clang ${tf_major}; Fedora: libomp-devel; Arch Linux: openmp; Homebrew: libomp")
endif()

find_package(OpenSSL 3 QUIET COMPONENTS Crypto)
if(NOT OpenSSL_FOUND)
  message(FATAL_ERROR "OpenSSL 3 (libcrypto with headers) was not found. Debian and Ubuntu: "
    "apt-get install libssl-dev; Fedora: openssl-devel; Homebrew: openssl@3")
endif()

find_package(fmt 9 QUIET)
if(NOT fmt_FOUND)
  set(FMT_INSTALL OFF)
  tf_fetch(fmt "fmt 9 to 12: libfmt-dev (Debian, Ubuntu), fmt-devel (Fedora), fmt (Arch, Homebrew)"
    https://github.com/fmtlib/fmt/archive/refs/tags/9.1.0.tar.gz
    5dea48d1fcddc3ec571ce2058e13910a0d4a6bab4cc09a809d8b1dd1c88ae6f2)
endif()

find_package(nlohmann_json 3.11 QUIET)
if(NOT nlohmann_json_FOUND)
  set(JSON_BuildTests OFF)
  set(JSON_Install OFF)
  tf_fetch(nlohmann_json "nlohmann_json 3.11: nlohmann-json3-dev (Debian, Ubuntu), json-devel \
(Fedora), nlohmann-json (Arch, Homebrew)"
    https://github.com/nlohmann/json/archive/refs/tags/v3.11.2.tar.gz
    d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273)
endif()

find_package(CLI11 2.1 QUIET)
if(NOT CLI11_FOUND)
  set(CLI11_INSTALL OFF)
  tf_fetch(CLI11 "CLI11 2.1: libcli11-dev (Debian, Ubuntu), cli11-devel (Fedora), cli11 (Arch, Homebrew)"
    https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.5.0.tar.gz
    17e02b4cddc2fa348e5dbdbb582c59a3486fa2b2433e70a0c3bacb871334fd55)
endif()

# Its headers alone: distributions build its library with other limits than ours.
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h)
if(NOT TOMLPLUSPLUS_INCLUDE_DIR)
  tf_fetch(tomlplusplus_release "toml++ 3.3: libtomlplusplus-dev (Debian, Ubuntu), \
tomlplusplus-devel (Fedora), tomlplusplus (Arch, Homebrew)"
    https://github.com/marzer/tomlplusplus/archive/refs/tags/v3.3.0.tar.gz
    fc1a5eb410f3c67e90e5ad1264a1386d020067cfb01b633cc8c0441789aa6cf2)
  set(TOMLPLUSPLUS_INCLUDE_DIR ${tomlplusplus_release_SOURCE_DIR}/include)
endif()
add_library(triforce_toml INTERFACE)
target_include_directories(triforce_toml SYSTEM INTERFACE ${TOMLPLUSPLUS_INCLUDE_DIR})

# Headers alone.
find_path(EIGEN3_INCLUDE_DIR Eigen/Eigenvalues PATH_SUFFIXES eigen3)
if(NOT EIGEN3_INCLUDE_DIR)
  message(FATAL_ERROR "Eigen 3.4 (Eigen/Eigenvalues) was not found. Debian and Ubuntu: apt-get install "
    "libeigen3-dev; Fedora: eigen3-devel; Arch Linux and Homebrew: eigen")
endif()
add_library(triforce_eigen INTERFACE)
target_include_directories(triforce_eigen SYSTEM INTERFACE ${EIGEN3_INCLUDE_DIR})

# Its CMake package accepts one major version at a time; src/cpu/gemm.cpp compiles with both.
foreach(version 2.6 3)
  if(NOT dnnl_FOUND)
    find_package(dnnl ${version} QUIET)
  endif()
endforeach()
if(NOT dnnl_FOUND)
  set(DNNL_BUILD_TESTS OFF)
  set(DNNL_BUILD_EXAMPLES OFF)
  set(DNNL_LIBRARY_TYPE STATIC)
  set(DNNL_CPU_RUNTIME OMP)
  set(DNNL_GPU_RUNTIME NONE)
  set(DNNL_ENABLE_PRIMITIVE MATMUL;REORDER)
  set(oneDNN_CONSIDERED_VERSIONS ${dnnl_CONSIDERED_VERSIONS})
  tf_fetch(oneDNN "oneDNN 2.6 or newer, or 3: libdnnl-dev (Debian, Ubuntu), onednn-devel (Fedora), \
onednn (Arch, Homebrew)"
    https://github.com/oneapi-src/oneDNN/archive/refs/tags/v2.7.3.tar.gz
    a50993aa6265b799b040fe745e0010502f9f7103cc53a9525d59646aef006633)
  if(NOT TARGET DNNL::dnnl)
    add_library(DNNL::dnnl ALIAS dnnl)
  endif()
endif()

# SentencePiece installs no CMake package.
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h)
find_library(SENTENCEPIECE_LIBRARY sentencepiece)
if(SENTENCEPIECE_INCLUDE_DIR AND SENTENCEPIECE_LIBRARY)
  add_library(sentencepiece::sentencepiece UNKNOWN IMPORTED)
  set_target_properties(sentencepiece::sentencepiece PROPERTIES
    IMPORTED_LOCATION "${SENTENCEPIECE_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${SENTENCEPIECE_INCLUDE_DIR}")
else()
  set(SPM_ENABLE_SHARED OFF)
  set(SPM_ENABLE_TCMALLOC OFF)
  # Release 0.2.0 uses std::uint32_t without its header, which GCC 15 no longer includes by chance.
  set(tf_flags "${CMAKE_CXX_FLAGS}")
  string(APPEND CMAKE_CXX_FLAGS " -include cstdint")
  tf_fetch(sentencepiece "SentencePiece: libsentencepiece-dev (Debian, Ubuntu), sentencepiece-devel \
(Fedora), sentencepiece (Arch, Homebrew)"
    https://github.com/google/sentencepiece/archive/refs/tags/v0.2.0.tar.gz
    9970f0a0afee1648890293321665e5b2efa04eaec9f1671fcf8048f456f5bb86)
  set(CMAKE_CXX_FLAGS "${tf_flags}")
  add_library(sentencepiece_fetched INTERFACE)
  target_compile_options(sentencepiece_fetched INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include cstdint>")
  target_link_libraries(sentencepiece_fetched INTERFACE sentencepiece-static)
  target_include_directories(sentencepiece_fetched SYSTEM INTERFACE ${sentencepiece_SOURCE_DIR}/src)
  add_library(sentencepiece::sentencepiece ALIAS sentencepiece_fetched)
endif()

# Neither has a CMake package in every distribution.
function(tf_find_library target header library packages)
  string(MAKE_C_IDENTIFIER "${library}" tf_name)
  find_path(${tf_name}_INCLUDE_DIR ${header})
  find_library(${tf_name}_LIBRARY ${library})
  if(NOT ${tf_name}_INCLUDE_DIR OR NOT ${tf_name}_LIBRARY)
    message(FATAL_ERROR "lib${library} with ${header} was not found. ${packages}")
  endif()
  add_library(${target} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${${tf_name}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${${tf_name}_INCLUDE_DIR}")
endfunction()
tf_find_library(triforce_pcre2 pcre2.h pcre2-8 "Debian and Ubuntu: apt-get install libpcre2-dev; \
Fedora: pcre2-devel; Arch Linux and Homebrew: pcre2")
tf_find_library(triforce_utf8proc utf8proc.h utf8proc "Debian and Ubuntu: apt-get install \
libutf8proc-dev; Fedora: utf8proc-devel; Arch Linux and Homebrew: utf8proc")

# Which MPI it is decides with whose launchers ranks can be started.
set(TF_MPI OFF)
set(MPI_CXX_SKIP_MPICXX ON)  # the C interface is enough
if(NOT TRIFORCE_MPI STREQUAL OFF)
  if(TRIFORCE_MPI STREQUAL ON)
    find_package(MPI REQUIRED COMPONENTS CXX)
  else()
    find_package(MPI QUIET COMPONENTS CXX)
  endif()
  set(TF_MPI ${MPI_CXX_FOUND})
endif()
message(STATUS "MPI: ${TF_MPI}")

# Boost.Math is headers alone. There is no small source to fetch of it, nor of the fibers of emulated
# threads, which are assembly for every processor.
set(tf_boost_parts)
if(TRIFORCE_CUDA STREQUAL EMULATED)
  set(tf_boost_parts COMPONENTS context)
endif()
find_package(Boost 1.74 QUIET ${tf_boost_parts})
if(NOT Boost_FOUND)
  message(FATAL_ERROR "Boost 1.74 (headers; Boost.Context for TRIFORCE_CUDA=EMULATED) was not found. "
    "Debian and Ubuntu: apt-get install libboost-dev libboost-context-dev; Fedora: boost-devel; "
    "Arch Linux: boost; Homebrew: boost")
endif()

if(TRIFORCE_TESTS)
  find_package(GTest 1.12 QUIET)
  if(NOT GTest_FOUND)
    set(INSTALL_GTEST OFF)
    tf_fetch(googletest "GoogleTest 1.12: libgtest-dev (Debian, Ubuntu), gtest-devel (Fedora), gtest \
(Arch), googletest (Homebrew)"
      https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz
      81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2)
  endif()
endif()
if(TRIFORCE_BENCHMARKS)
  find_package(benchmark 1.7 QUIET)
  if(NOT benchmark_FOUND)
    set(BENCHMARK_ENABLE_TESTING OFF)
    set(BENCHMARK_ENABLE_INSTALL OFF)
    set(BENCHMARK_ENABLE_GTEST_TESTS OFF)
    set(BENCHMARK_INSTALL_DOCS OFF)
    tf_fetch(googlebenchmark "Google Benchmark 1.7: libbenchmark-dev (Debian, Ubuntu), \
google-benchmark-devel (Fedora), benchmark (Arch), google-benchmark (Homebrew)"
      https://github.com/google/benchmark/archive/refs/tags/v1.7.1.tar.gz
      6430e4092653380d9dc4ccb45a1e2dc9259d581f4866dc0759713126056bc1d7)
  endif()
endif()
