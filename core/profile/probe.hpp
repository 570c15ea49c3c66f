#pragma once

#include <mpi.h>

#include <functional>

#include "core/model/batch_source.hpp"
#include "core/model/stage_options.hpp"
#include "core/profile/profile.hpp"

namespace minipipe::core {

// Trimmed means of the seconds of the actions of one stage.
struct ActionSeconds {
  double forward = 0;
  double backward = 0;  // without a split
  double backward_input = 0;
  double backward_weight = 0;
  double update = 0;
};

// Which stage is timed, and how. It works in the order of 1F1B, as the first of `stages` stages does.
struct ProbePlan {
  int stages = 1;  // of the deck's run: they set the microbatches in flight
  StageLayers layers;
  bool split_backward = false;
  WeightRule weight_rule = WeightRule::current;
};

// Seconds of single actions, by kind.
struct ProbeSamples {
  std::vector<double> forward, backward, backward_input, backward_weight, update;
  ActionSeconds typical() const;
};

// The stage that is timed, without the memory of its messages.
KokkosStageOptions probe_options(const Deck& deck, const ProbePlan& plan);

// Runs a stage of the deck's model alone, on tokens and gradients of random numbers, and times every action as the executor
// does. Collective: all ranks of `comm` begin and end together, each with its own plan, so that what they share (memory, clock
// of the processor) is shared as in a run.
// Appends to `samples`; `beat` is called after each window of its own.
void run_probe(const Deck& deck, const ProbePlan& plan, BatchSource& source, MPI_Comm comm, ProbeSamples& samples,
               const std::function<void()>& beat);

}  // namespace minipipe::core
