#include "core/train/segment_report.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/train/gather.hpp"
#include "core/train/mean_loss.hpp"

namespace minipipe::core {

namespace {
template <class T>
std::vector<T> joined(const std::vector<std::vector<T>>& parts) {
  std::vector<T> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
}  // namespace

LocalReport LocalReport::take(Pipeline& pipeline, std::vector<MicrobatchLoss> losses) {
  LocalReport report;
  report.losses = std::move(losses);
  for (LocalStage& stage : pipeline.stages()) {
    const auto log = stage.executor->take_log();
    report.actions.insert(report.actions.end(), log.begin(), log.end());
    if (!stage.model) continue;
    for (const GradientSquares& update : stage.model->take_gradient_squares()) {
      for (const TensorSquares& tensor : update.squares) {
        report.squares.push_back({update.update, tensor.global_index, tensor.sum});
      }
    }
  }
  return report;
}

SegmentReport SegmentReport::collect(MPI_Comm comm, const LocalReport& mine) {
  SegmentReport report;
  report.ranks = gather(comm, mine.actions);
  report.losses = joined(gather(comm, mine.losses));
  report.squares = joined(gather(comm, mine.squares));
  sort_by_microbatch(report.losses);
  std::stable_sort(report.squares.begin(), report.squares.end(), [](const SquareRecord& a, const SquareRecord& b) {
    return a.update != b.update ? a.update < b.update : a.parameter < b.parameter;
  });
  return report;
}

schedules::Log SegmentReport::by_rank(const Place& place, int replica) const {
  schedules::Log log;
  log.ranks.resize(static_cast<std::size_t>(place.placement.ranks));
  for (int r = 0; r < place.pipeline_ranks(); ++r) {
    for (const auto& entry : ranks[replica * place.pipeline_ranks() + r]) {
      log.ranks[place.placement.rank_of(entry.action.stage)].push_back(entry);
    }
  }
  // Each stage of a rank kept its own log. A stage's entries never change places: their times ascend.
  for (auto& rank : log.ranks) {
    std::stable_sort(rank.begin(), rank.end(), [](const auto& a, const auto& b) { return a.start_s < b.start_s; });
  }
  return log;
}

std::vector<TraceRow> trace_rows(const SegmentReport& report, const TraceBasis& basis, std::int64_t first, std::int64_t end) {
  std::vector<TraceRow> rows(static_cast<std::size_t>(end - first));
  for (std::int64_t update = first; update < end; ++update) {
    TraceRow& row = rows[update - first];
    row.step = update + 1;
    row.tokens = row.step * basis.tokens_per_update;
    row.lr = basis.learning_rates[update - first];
  }
  for (const auto& rank : report.ranks) {
    for (const auto& entry : rank) {
      if (entry.action.kind != schedules::Kind::update) continue;
      TraceRow& row = rows[entry.action.microbatch - first];
      row.time_s = std::max(row.time_s, basis.time_offset_s + entry.end_s);
    }
  }
  for (auto from = report.losses.begin(); from != report.losses.end();) {
    const std::int64_t update = from->microbatch / basis.window;
    const auto to = std::find_if(from, report.losses.end(),
                                 [&](const MicrobatchLoss& loss) { return loss.microbatch / basis.window != update; });
    rows[update - first].loss = mean_loss({from, to});
    from = to;
  }
  for (const SquareRecord& record : report.squares) rows[record.update - first].grad_norm += record.sum_of_squares;
  for (TraceRow& row : rows) {
    row.grad_norm = report.squares.empty() ? std::numeric_limits<double>::quiet_NaN() : std::sqrt(row.grad_norm);
  }
  return rows;
}

}  // namespace minipipe::core
