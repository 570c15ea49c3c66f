#pragma once

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "schedules/graph/update_graph.hpp"

namespace minipipe::schedules {

// How the list scheduler chooses. The defaults are the rules published with OctoPipe (arXiv 2509.23722).
struct ListRules {
  bool alternate = true;        // after a backward, a forward first; else backwards, forwards, weight gradients
  bool defer = true;            // put off work whose message could not have been hidden behind this device's last workload
  bool deep_forward = false;    // forwards of later stages first, instead of smaller microbatches
  bool whole_backward = false;  // no separate weight gradients
  double hold = 0;              // no weight gradient is begun if other work comes within this share of its time
  double cap = std::numeric_limits<double>::infinity();  // units of layer x microbatch that a rank may hold
};

// Builds an order of one update: at every event, each idle device in turn takes the first of its ready workloads. Under a cap
// one microbatch of room is kept for each stage, which only a stage with none in flight may take; so the oldest microbatch
// always gets through and the schedule cannot come to a stop.
class ListScheduler {
 public:
  // The makespan; the order too if `order` is not null. InputError if a rank's stages do not fit under the cap (check_cap).
  double run(const UpdateGraph& graph, const ListRules& rules, Plan* order = nullptr);

 private:
  struct Device {
    std::vector<int> stages;
    double free_at = 0;
    double wake = 0;  // when the device has to be looked at again; changed by wake_at
    double last_start = -1;
    Action last = {};
    bool started = false;
    double shared = 0;    // units in flight beyond one microbatch per stage
    double reserved = 0;  // one microbatch of every stage
  };
  struct Head {
    double ready = std::numeric_limits<double>::infinity();
    bool deferred = false;
  };
  enum class Type { backward, forward, weight };

  void reset();
  void wake_at(std::size_t d, double time);
  std::size_t next_awake();
  Head head(const Device& device, Type type, int stage, double now) const;
  bool better(Type type, int stage, int than) const;
  int number(Type type, int stage) const;
  bool admitted(const Device& device, int stage) const;
  bool choose(const Device& device, double now, Type* type, int* stage) const;
  double next_arrival(const Device& device, double now) const;
  void start(std::size_t d, Type type, int stage, double now, Plan* order);

  const UpdateGraph* graph_ = nullptr;
  ListRules rules_;
  std::size_t m_ = 0;
  bool backwards_begun_ = false;
  std::vector<Device> devices_;
  // When devices wake, and which: a heap with the earliest on top, of equal ones the lowest number. An entry counts if its
  // time is still the device's.
  std::vector<std::pair<double, std::size_t>> wakes_;
  std::vector<int> forwards_, backwards_, weights_;
  std::vector<double> forward_end_, gradient_end_;
};

// Units the ranks need to get a single microbatch through: all their stages hold it at one time.
std::vector<double> least_units(const UpdateGraph& graph);

// InputError naming the rank, its largest stage and what is missing if a rank needs more than the cap.
void check_cap(const UpdateGraph& graph, double cap);

}  // namespace minipipe::schedules
