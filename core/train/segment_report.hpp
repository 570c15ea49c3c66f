#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "core/io/trace.hpp"
#include "core/model/microbatch_loss.hpp"
#include "core/train/pipeline.hpp"
#include "core/train/place.hpp"
#include "schedules/plan/plan.hpp"

namespace minipipe::core {

// Plain records, copied between ranks byte by byte.
struct SquareRecord {
  std::int64_t update;
  std::int64_t parameter;  // global index
  double sum_of_squares;
};

// What one training segment left on this rank.
struct LocalReport {
  schedules::ActionLog actions;
  std::vector<MicrobatchLoss> losses;  // last stage only
  std::vector<SquareRecord> squares;   // sums of squares of the gradients that this rank owns, per update and tensor

  // Takes it out of the stages; `losses` were collected during the segment.
  static LocalReport take(Pipeline& pipeline, std::vector<MicrobatchLoss> losses);
};

// The same of all ranks; on rank 0 only.
struct SegmentReport {
  std::vector<schedules::ActionLog> ranks;
  std::vector<MicrobatchLoss> losses;
  std::vector<SquareRecord> squares;

  // Collective.
  static SegmentReport collect(MPI_Comm comm, const LocalReport& mine);

  // The actions of one replica by the pipeline ranks of its placement, in the order they were done, whichever process did them.
  schedules::Log by_rank(const Place& place, int replica) const;
};

// Where a trace row's numbers come from.
struct TraceBasis {
  std::int64_t window = 1;  // microbatches per update, of all replicas
  std::int64_t tokens_per_update = 0;
  double time_offset_s = 0;            // time before a resume
  std::vector<double> learning_rates;  // by update of the segment
};

// One row per update in [first, end): losses averaged in the order of microbatches, squares added in the order of the unsplit
// model's tensors, so that neither depends on the number of stages. An update's time is when its last stage had made it.
std::vector<TraceRow> trace_rows(const SegmentReport& report, const TraceBasis& basis, std::int64_t first, std::int64_t end);

}  // namespace minipipe::core
