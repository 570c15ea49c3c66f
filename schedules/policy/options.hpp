#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace minipipe::schedules {

// How a forward and a backward that are both ready are ordered under PACI's dynamic order.
enum class Ready {
  alternate,       // Algorithm 1 of the PACI paper: forward and backward take turns
  backward_first,  // the authors' released code: waiting gradients are drained first
};

enum class Order { dynamic, fixed };

// Relative times of the three passes of a stage.
struct PassCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
};

struct ScheduleOptions {
  std::string name = "1f1b";             // one of schedule_names()
  int stages = 1;                        // N; with several stages per rank: all of them
  std::int64_t window = 1;               // microbatches per optimizer update: m of flush schedules, a of PACI
  Order order = Order::dynamic;          // paci, pipemare
  Ready ready = Ready::alternate;        // paci, pipemare with dynamic order
  int extra_in_flight = 0;               // paci: further forwards admitted on all stages but the last
  std::int64_t synchronous_updates = 0;  // asynchronous schedules: the first K updates run as 1f1b
  int chunks = 1;                        // interleaved, zb-v: stages per rank
  double memory_limit = 0;               // zb-auto: activations of one microbatch on one stage; 0: N
  PassCosts costs = {};                  // zb-auto: what it optimises for
  std::string plan_file = {};            // plan: a CSV file (plan/csv.hpp) with the order of one update
};

// The schedules known by name, in the order they are listed to users.
const std::vector<std::string>& schedule_names();

// True if weights may change between a microbatch's forward and its backward.
bool is_asynchronous(const std::string& name);

// True if the order of a rank is a list made beforehand (generate/generate.hpp), not a decision at run time.
bool is_planned(const std::string& name);

// Throws InputError if an option is unknown or out of range. Options that only some schedules have are not looked at for the
// others, so that one deck can be run under several schedules. Rules between options:
// interleaved: `stages` is a multiple of `chunks`. zb-v: chunks = 2. pipedream-2bw: window >= stages. plan: a file is named.
// Any number of microbatches per update runs under every other schedule, also fewer than stages and one.
void validate(const ScheduleOptions& options);

// The same, and that `stage` (0-based) is one of the stages.
void validate(const ScheduleOptions& options, int stage);

// Microbatches per optimizer update as they are run: `window`, but 1 for async-1f1b and pipedream, which update after every
// backward whatever `window` is.
std::int64_t effective_window(const ScheduleOptions& options);

// Most activations ever alive on a stage: the number of activation slots to allocate.
// gpipe: m; 1f1b: min(N+1-i, m); asynchronous: N+1-i (paci: + extra_in_flight except on the last stage); planned schedules: the
// peak of the generated plan, counted from the forward to the weight gradient.
std::int64_t activation_slots(const ScheduleOptions& options, int stage);

}  // namespace minipipe::schedules
