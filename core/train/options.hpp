#pragma once

#include <vector>

#include "core/deck/deck.hpp"
#include "core/model/stage_options.hpp"
#include "core/train/place.hpp"
#include "schedules/plan/placement.hpp"
#include "schedules/policy/policy.hpp"
#include "schedules/simulate/simulator.hpp"

namespace minipipe::core {

// The deck as it is run: schedules that update after every backward have one microbatch per update, whatever
// train.microbatches says.
Deck effective_deck(Deck deck);

// What the deck's blocks mean to the layers below: the schedule, the model, one stage of it.
schedules::ScheduleOptions schedule_options(const Deck& deck, int stages);

// Forwards beyond one that a stage can have in flight at most: as many as there are between two drains. More slots than for
// these (schedule.extra_in_flight) would never be used.
std::int64_t most_extra_in_flight(const Deck& deck);

// Which pipeline rank holds which stage, on so many ranks in all; a replica in one process stands for as many pipeline ranks as
// the schedule has.
schedules::Placement placement_of_run(const Deck& deck, int ranks);
Place place_of_run(const Deck& deck, int rank, int ranks);
ModelConfig model_config(const Deck& deck);
TrainShape train_shape(const Deck& deck);
Precision precision_of(const Deck& deck);
std::vector<StageLayers> stage_layers(const Deck& deck, int stages);

// Everything but the message memory. `layers`: the result of stage_layers.
KokkosStageOptions stage_options(const Deck& deck, const std::vector<StageLayers>& layers, int stage, int replica = 0);

// Message slots at each end of the edge between `stage` and `stage + 1`: as many as the upstream stage can have in flight, so
// that no send ever waits for room and a schedule's order is never changed by the transport.
int edge_slots(const Deck& deck, int stages, int stage);

// Floats of one message between stages (with bf16 two numbers in each), rounded up so that every slot starts on a cache line.
std::int64_t message_floats(const Deck& deck);

// Seconds per action and link of the deck's [emulate] block; the costs `check` and `simulate` use. `latency` is the largest.
schedules::Costs emulated_costs(const Deck& deck, int stages);

// Per optimizer update, all replicas together.
std::int64_t microbatches_per_update(const Deck& deck);
std::int64_t tokens_per_update(const Deck& deck);

}  // namespace minipipe::core
