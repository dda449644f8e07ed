// What main() of a benchmark program is: our own options, then Google Benchmark's.
#pragma once
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string_view>

#include "triforce/error.h"

namespace triforce::bench {

// take(argument): true for an option of ours, which it stores; Google Benchmark sees the others.
// prepare(): what the output says of the run, and benchmarks that are not registered yet. Returns
// the exit status.
template <class Take, class Prepare>
int run_benchmarks(const char* program, int argc, char** argv, const Take& take,
                   const Prepare& prepare) {
  try {
    int kept = 1;
    for (int i = 1; i < argc; ++i) {
      if (!take(std::string_view(argv[i]))) argv[kept++] = argv[i];
    }
    argc = kept;
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    prepare();
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
  } catch (const Error& e) {
    std::fprintf(stderr, "%s: %s\n", program, e.what());
    return static_cast<int>(e.code());
  }
  return 0;
}

}  // namespace triforce::bench
