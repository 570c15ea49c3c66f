#include "schedules/exec/run_together.hpp"

#include <algorithm>
#include <random>
#include <string>

#include "schedules/error.hpp"

namespace minipipe::schedules {
namespace {

bool all_finished(const std::vector<Executor*>& executors) {
  return std::all_of(executors.begin(), executors.end(), [](const Executor* executor) { return executor->finished(); });
}

// One turn for each; throws if nobody moved.
void round(const std::vector<Executor*>& executors) {
  bool moved = false;
  for (Executor* executor : executors) moved |= executor->advance();
  if (moved || all_finished(executors)) return;
  std::string text = "deadlock: no stage can go on";
  for (const Executor* executor : executors) text += "\n  " + executor->describe();
  throw RunError(text);
}

}  // namespace

void run_together(const std::vector<Executor*>& executors) {
  while (!all_finished(executors)) round(executors);
}

void run_together_shuffled(const std::vector<Executor*>& executors, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::size_t idle = 0;
  while (!all_finished(executors)) {
    idle = executors[random() % executors.size()]->advance() ? 0 : idle + 1;
    if (idle <= 8 * executors.size()) continue;
    round(executors);  // many idle turns: make sure by asking everybody
    idle = 0;
  }
}

}  // namespace minipipe::schedules
