#pragma once

#include <string>
#include <vector>

#include "schedules/plan/placement.hpp"
#include "schedules/plan/plan.hpp"
#include "schedules/policy/options.hpp"

namespace minipipe::schedules {

// Adds the SEND and RECV cells that a compute-only plan needs between ranks; neighbouring stages on one rank need none. Cells
// that are there already are replaced. A send follows the action that makes its message. A receive stands where the message is
// there: behind every action of its rank that starts, in the simulated run with `costs`, before the message is sent, and
// before all others. So it never keeps ready work waiting, and since all cells are then ordered by one clock, the lists cannot
// block each other, whether sends are buffered or not. RunError if the plan cannot be executed at all.
Plan with_communication(const Plan& compute_only, const Placement& placement, const PassCosts& costs = {});

enum class Sends {
  buffered,    // a send is done at once
  rendezvous,  // a send is done only together with its receive
};

// Executes a plan without times, every rank its list in order, blocking at each cell. Consecutive communication cells of a rank
// are one group, started together and left when all are done; messages are matched by stage and microbatch. A computation needs
// its inputs: the receive on its own rank, or the neighbouring stage's computation where that is on the same rank. Returns, for
// each rank that cannot reach its end, the cell it is stuck at; empty: free of deadlock.
std::vector<std::string> find_deadlocks(const Plan& plan, const Placement& placement, Sends sends);

// The same under both kinds of sends. A plan without communication cells is given them first.
std::vector<std::string> find_deadlocks(const Plan& plan, const Placement& placement);

// Throws InputError with all stuck cells if there are any.
void prove_no_deadlock(const Plan& plan, const Placement& placement);

}  // namespace minipipe::schedules
