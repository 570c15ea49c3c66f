#pragma once

#include <string>
#include <vector>

namespace minipipe::schedules {

// What one layer costs for one microbatch.
struct LayerCosts {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  double units = 1;             // activation memory in units of layer x microbatch; embedding and head hold none
  double activation_bytes = 0;  // kept from the forward to the weight gradient; 0: not known
  double parameter_bytes = 0;   // weights, gradients and optimizer state; 0: not known
  double gradient_bytes = 0;    // what replicas exchange in an update; 0: nothing, or not known

  double time() const { return forward + backward_input + backward_weight; }
};

enum class Clock {
  ticks,  // whole ticks of 0.01 ms: every layer is rounded before stages are summed, and a workload takes at least one
  real,   // milliseconds as they are
};

// A model as the tuner sees it: a list of layers, an embedding that joins the first stage and a head that joins the last.
struct CostProfile {
  std::string name;
  std::string pattern;             // one symbol per layer, for reports
  std::vector<LayerCosts> layers;  // milliseconds, or ticks after in_ticks
  LayerCosts embedding = {.units = 0};
  LayerCosts head = {.units = 0};
  double link = 0;  // a message between neighbouring stages on different devices; whatever its size
  Clock clock = Clock::real;

  int size() const { return static_cast<int>(layers.size()); }
  // Embedding or head cost something, so that a stage can consist of it alone.
  bool has_embedding() const { return embedding.time() > 0; }
  bool has_head() const { return head.time() > 0; }
};

constexpr double kTicksPerMillisecond = 100;

// The profile in whole ticks. A profile in ticks is returned as it is.
CostProfile in_ticks(CostProfile profile);

// InputError naming the layer if a cost is negative or not finite, or if there are no layers.
void validate(const CostProfile& profile);

// Sums of the layers [0, k), for the costs of stages in constant time.
class CostSums {
 public:
  explicit CostSums(const CostProfile& profile);

  const CostProfile& profile() const { return profile_; }
  // Layers [first, last) as a stage; embedding and head join where they belong.
  LayerCosts stage(int first, int last, bool is_first, bool is_last) const;
  // All stages of a partition (layers per stage).
  std::vector<LayerCosts> stages(const std::vector<int>& partition) const;

 private:
  CostProfile profile_;
  std::vector<LayerCosts> sums_;
};

// A time below which no plan ends that uses every device: the work shared evenly, and as layers can be shared; one microbatch's
// way through all layers and over a link to each device, and back; and for each layer, its own work on one device behind the
// first forward's way to it, and the last gradient's way from it.
double lower_bound(const CostProfile& profile, int devices, int microbatches);

// `layers` over `stages`, as even as can be in number; the first ones take what is left over.
// InputError if there are more stages than layers.
std::vector<int> uniform_partition(int layers, int stages);

// The partition with the smallest time of the longest stage, and among those the smallest sum of squares. First and last may be
// without layers if embedding and head cost something. InputError if there are more stages than layers (and ends).
std::vector<int> min_max_partition(const CostProfile& profile, int stages);

}  // namespace minipipe::schedules
