// What is recorded of a training segment, and the proof that its actions kept the rules.
#include "core/comm/agreement.hpp"
#include "core/train/options.hpp"
#include "core/train/trainer.hpp"
#include "schedules/check/checker.hpp"
#include "schedules/check/versions.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

void Trainer::report_segment(std::int64_t first_update, double training_s) {
  const auto report = SegmentReport::collect(comm_.get(), LocalReport::take(*pipeline_, std::move(losses_)));
  losses_ = {};
  agree(comm_.get(), [&] {
    if (place_.rank == 0) record_segment(report, first_update, training_s);
  });
}

void Trainer::record_segment(const SegmentReport& report, std::int64_t first_update, double training_s) {
  TraceBasis basis;
  basis.window = microbatches_per_update(deck_);
  basis.tokens_per_update = tokens_per_update(deck_);
  basis.time_offset_s = elapsed_before_s_;
  const LearningRateOptions rate = {.peak = deck_.train.learning_rate,
                                    .minimum = deck_.train.min_learning_rate,
                                    .warmup_steps = deck_.train.warmup_steps,
                                    .total_steps = deck_.run.steps};
  for (std::int64_t u = first_update; u < update_; ++u) basis.learning_rates.push_back(learning_rate(u, rate));
  const auto rows = trace_rows(report, basis, first_update, update_);
  if (!rows.empty()) final_loss_ = rows.back().loss;
  trace_->append(rows);
  for (std::size_t r = 0; r < report.ranks.size(); ++r) trace_->append_actions(static_cast<int>(r), report.ranks[r]);
  trace_->flush();

  last_log_ = report.by_rank(place_, 0);
  const auto judge = [&](const schedules::Log& log, int replica) {
    check_segment(log, replica, first_update);
    add_message_waits(log, replica);
  };
  judge(last_log_, 0);
  for (int replica = 1; replica < place_.replicas; ++replica) judge(report.by_rank(place_, replica), replica);
  const bool own_rule = !schedules::is_asynchronous(deck_.schedule.name) || asynchronous_now(first_update);
  if (own_rule && segment_ > 1) {
    steady_.tokens += (update_ - first_update) * basis.tokens_per_update;
    steady_.seconds += training_s;
    for (const auto& rank : report.ranks) {
      for (const auto& entry : rank) steady_.compute_s += entry.end_s - entry.start_s;
    }
  }
}

void Trainer::add_message_waits(const schedules::Log& log, int replica) {
  message_waits_.resize(static_cast<std::size_t>(place_.ranks));
  if (place_.one_process()) return;
  const auto waits = schedules::message_waits(log, place_.placement);
  for (std::size_t r = 0; r < waits.size(); ++r) message_waits_[replica * waits.size() + r] += waits[r];
}

void Trainer::check_segment(const schedules::Log& log, int replica, std::int64_t first_update) {
  const std::int64_t window = deck_.train.microbatches;
  const schedules::CheckRange range{.first_microbatch = first_update * window,
                                    .microbatches = (update_ - first_update) * window,
                                    .first_update = first_update,
                                    .placement = place_.placement};
  const auto report = schedules::check(log, schedule_options(deck_, place_.stages()), range);
  if (!report.ok()) {
    const std::string of_replica = place_.replicas > 1 ? " on replica " + std::to_string(replica) : "";
    throw RunError("the action log of updates " + std::to_string(first_update) + " to " + std::to_string(update_) + of_replica +
                   " breaks the rules of schedule " + deck_.schedule.name + ": " + report.problems.front() + " (" +
                   std::to_string(report.problems.size()) + " problems; the log is in " + folder_.trace().string() + ")");
  }
  versions_.add(schedules::measure_versions(log.plan(), schedule_options(deck_, place_.stages())));
}

}  // namespace minipipe::core
