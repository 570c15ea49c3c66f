#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/deck/deck.hpp"

namespace minipipe::core {

// Bytes that each rank will send per update, with the names of SentBytes::purposes(): the mean over the deck's run.steps
// updates, evaluations apart, as summary.json tells it afterwards. One rank per stage (or per group of them, as the schedule
// places them) and replica. Exact, but for sharded weights under an asynchronous schedule: how often a layer is gathered
// depends on the order of passes, and that is the simulated one. Allocates nothing that grows with the model.
using PlannedTraffic = std::vector<std::pair<std::string, double>>;
std::vector<PlannedTraffic> planned_traffic(const Deck& deck, int stages);

// Bytes per update that the rank that sends most sends to other replicas: all purposes but the pipeline's. 0 if there are none.
double most_exchanged(const std::vector<PlannedTraffic>& ranks);

// Bytes per update that each stage sends to other replicas, of the replica that sends most; by stage. Zeros with one replica.
std::vector<double> planned_exchange(const Deck& deck, int stages);

}  // namespace minipipe::core
