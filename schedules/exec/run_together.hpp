#pragma once

#include <cstdint>
#include <vector>

#include "schedules/exec/executor.hpp"

namespace minipipe::schedules {

// Advances executors that share in-process channels on one thread until all have finished their segment, one action each in
// turn. RunError with the state of all of them if a whole round makes no progress: nothing outside could end the wait.
void run_together(const std::vector<Executor*>& executors);

// The same with a random executor at each turn: the arrival order then differs with `seed`, and is the same for equal seeds.
void run_together_shuffled(const std::vector<Executor*>& executors, std::uint64_t seed);

}  // namespace minipipe::schedules
