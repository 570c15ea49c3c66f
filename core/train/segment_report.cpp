#include "core/train/segment_report.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/train/gather.hpp"

namespace minipipe::core {

namespace {
template <class T>
std::vector<T> joined(const std::vector<std::vector<T>>& parts) {
  std::vector<T> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
}  // namespace

LocalReport LocalReport::take(Pipeline& pipeline, std::vector<LossRecord> losses) {
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
  std::sort(report.losses.begin(), report.losses.end(),
            [](const LossRecord& a, const LossRecord& b) { return a.microbatch < b.microbatch; });
  std::sort(report.squares.begin(), report.squares.end(), [](const SquareRecord& a, const SquareRecord& b) {
    return a.update != b.update ? a.update < b.update : a.parameter < b.parameter;
  });
  return report;
}

schedules::Log SegmentReport::by_rank(const schedules::Placement& placement) const {
  schedules::Log log;
  log.ranks.resize(static_cast<std::size_t>(placement.ranks));
  for (const auto& rank : ranks) {
    for (const auto& entry : rank) log.ranks[placement.rank_of(entry.action.stage)].push_back(entry);
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
  for (const LossRecord& record : report.losses) {
    rows[record.microbatch / basis.window - first].loss += record.loss / static_cast<double>(basis.window);
  }
  for (const SquareRecord& record : report.squares) rows[record.update - first].grad_norm += record.sum_of_squares;
  for (TraceRow& row : rows) {
    row.grad_norm = report.squares.empty() ? std::numeric_limits<double>::quiet_NaN() : std::sqrt(row.grad_norm);
  }
  return rows;
}

}  // namespace minipipe::core
