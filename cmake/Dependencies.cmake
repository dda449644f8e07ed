# System packages; scripts/setup.sh installs what is missing. See CONTRIBUTING.md for why each.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
find_package(dnnl 2.6 REQUIRED)

find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h REQUIRED)
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
add_library(sentencepiece::sentencepiece UNKNOWN IMPORTED)
set_target_properties(sentencepiece::sentencepiece PROPERTIES
  IMPORTED_LOCATION "${SENTENCEPIECE_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${SENTENCEPIECE_INCLUDE_DIR}")

if(TRIFORCE_TESTS)
  find_package(GTest 1.12 REQUIRED)
endif()
if(TRIFORCE_BENCHMARKS)
  find_package(benchmark 1.7 REQUIRED)
endif()
