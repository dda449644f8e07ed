// The threads that a parallel region really has. OpenMP gives fewer than it is asked for under a
// thread limit, with dynamic threads, without active levels and inside other regions, and says
// nothing; oneDNN then leaves a part of its product uncomputed.
#pragma once

namespace triforce::cpu {

// Threads that a region of the calling thread has when `threads` (1 or more) are asked for; at
// least 1. Switches dynamic adjustment off and active levels on for the calling thread.
int team_size(int threads);

// Sets the number of threads (1 or more) of all later regions of the calling thread, those of
// libraries included. Throws Error(kResources): FewerThreads where a region has fewer, SmallStacks
// where their stacks are too small to compute on. Asks again only when the number changes.
void expect_team(int threads);

}  // namespace triforce::cpu
