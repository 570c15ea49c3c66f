#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/deck/deck.hpp"
#include "core/model/stage_options.hpp"
#include "schedules/check/checker.hpp"
#include "schedules/simulate/simulator.hpp"

namespace minipipe::core {

// What can be known about a run before it starts.
struct Preflight {
  std::int64_t updates = 0;  // simulated
  schedules::SimulationResult simulation;
  double simulation_seconds = 0;  // of processor time
  schedules::CheckReport report;
};

// Updates that show a steady state. Flush schedules repeat themselves from the first one on; an asynchronous one is steady
// after every stage has been full for some windows, of which a pipe of millions of passes is given as many as fill it twice.
std::int64_t steady_updates(bool asynchronous, int stages, std::int64_t window);

// Simulates `updates` updates (0: enough to reach and show a steady state) with the costs of [emulate] and checks the order
// that results. Nothing is allocated.
Preflight preflight(const Deck& deck, int stages, std::int64_t updates = 0);
// The same with other costs.
Preflight preflight(const Deck& deck, int stages, std::int64_t updates, const schedules::Costs& costs);

// The same before every job: throws RunError if the schedule would break its own rules, or if its order with the sends and
// receives it needs could deadlock, whether sends are buffered or wait for their receives.
void check_schedule(const Deck& deck, int stages);

// Why this program or machine cannot carry the deck's messages between stages, with the remedy: parallel.transport was not
// built in, or parallel.staging hands on device memory where kernels run on the host. Empty if it can.
std::string transport_problem(const Deck& deck);
// The same before every job: throws InputError.
void check_transport(const Deck& deck);

// A warning if the deck asks for bf16 where its products are slow. Empty if not.
std::string precision_warning(const Deck& deck);

// A warning if the deck asks for what is known to train badly: an asynchronous schedule whose gradients are more than one
// update old, under AdamW from the first update on. Empty if not.
std::string delay_warning(const Deck& deck, int stages);

// A line if schedule.extra_in_flight admits more than can be in flight between two drains. Empty if not.
std::string in_flight_note(const Deck& deck);

// Bytes each stage of a replica will allocate, messages and the exchange with other replicas included. Allocates nothing.
struct PlannedMemory {
  StageBytes stage;
  std::size_t comm = 0;
  std::size_t total() const { return stage.total() + comm; }

  PlannedMemory& operator+=(const PlannedMemory& other) {
    stage += other.stage;
    comm += other.comm;
    return *this;
  }
  // By category, with the names of reports.
  std::vector<std::pair<std::string, std::size_t>> categories() const;
};
std::vector<PlannedMemory> planned_memory_by_stage(const Deck& deck, int stages, int replica = 0);

// The same of all replicas: by replica and stage.
std::vector<std::vector<PlannedMemory>> planned_memory_by_replica(const Deck& deck, int stages);

// By rank, all replicas; the second from what the function above told.
std::vector<PlannedMemory> planned_memory_by_rank(const Deck& deck, int stages);
std::vector<PlannedMemory> planned_memory_by_rank(const Deck& deck, int stages,
                                                  const std::vector<std::vector<PlannedMemory>>& replicas);

}  // namespace minipipe::core
