// This has to be settled before main() does anything, because libraries read it earlier.
#pragma once

namespace triforce {

// Starts this program once more, with the same arguments, where its environment or its limits have
// to be others than those it was given; returns where they need not be, or cannot be changed.
//  - OpenMP's threads spin for a bounded time only, unless OMP_WAIT_POLICY or GOMP_SPINCOUNT say
//    how long: on a busy machine they take the processor from the thread that they wait for.
//  - They are bound to no place (OMP_PROC_BIND and the like): forked ranks and threads of other
//    libraries would share the first one. The processors of all places together still bound this
//    process.
//  - The soft limit of stacks is at least 1 MiB, where the hard one lets it.
void settle_start(char** argv);

}  // namespace triforce
