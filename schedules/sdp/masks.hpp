#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace minipipe::schedules {

// Which worker of subnetwork data parallelism (SDP, arXiv 2507.09029) holds which unit of a model. Workers are the replicas of
// the data-parallel axis, units the parts that a worker holds or leaves out as a whole. Fixed for a run.
struct Masks {
  int workers = 1;
  std::vector<std::vector<int>> holders;  // by unit: the workers that hold it, ascending; at least one

  int units() const { return static_cast<int>(holders.size()); }
  bool holds(int worker, int unit) const;
  std::vector<int> units_of(int worker) const;  // ascending

  friend bool operator==(const Masks&, const Masks&) = default;
};

enum class MaskGenerator {
  cyclic,  // worker w holds consecutive units, round the circle, from w units / workers on
  random   // any balanced assignment, by seed
};

struct MaskOptions {
  int workers = 1;
  int units = 1;
  double coverage = 1.0;  // C in (0, 1]: each worker holds max(1, round(C units)) units
  MaskGenerator generator = MaskGenerator::cyclic;
  std::uint64_t seed = 1;  // random only
};

// Units that each worker holds.
int units_per_worker(const MaskOptions& options);

// Every worker holds units_per_worker units, and holder counts of any two units differ by at most one. InputError naming
// sdp.coverage and the rule if a unit would be held by nobody or if the graph of workers and units falls apart (then parts of
// the model would never meet: not for one worker).
Masks make_masks(const MaskOptions& options);

// All workers hold all units.
Masks full_masks(int workers, int units);

// True if every worker can be reached from every other over units they share.
bool connected(const Masks& masks);

// 1 - the second largest eigenvalue of the matrix by which a round of averaging over holders mixes workers:
// P[w][w'] = 1/|units of w| sum over units u that both hold of 1/|holders of u|. 1: full coverage; 0: disconnected.
double spectral_gap(const Masks& masks);

// Distance of the assignment from the uniform one: root mean square over units of (holders / mean holders - 1).
double masking_error(const Masks& masks);

// For people: a row per replica, a mark per unit, and the holder counts below.
std::string to_text(const Masks& masks);
// The same with the rows of these replicas only.
std::string to_text(const Masks& masks, const std::vector<int>& workers);

}  // namespace minipipe::schedules
