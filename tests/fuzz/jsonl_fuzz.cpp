// Data sets of .jsonl files.
#include "dataset_fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  triforce::fuzz::check_dataset("jsonl", data, size);
  return 0;
}
