// The end of a run: memory, timeline, summary.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>

#include "core/comm/agreement.hpp"
#include "core/io/chrome_trace.hpp"
#include "core/linalg/gemm.hpp"
#include "core/model/flops.hpp"
#include "core/train/gather.hpp"
#include "core/train/options.hpp"
#include "core/train/predict.hpp"
#include "core/train/preflight.hpp"
#include "core/train/trainer.hpp"
#include "schedules/simulate/bubbles.hpp"

namespace minipipe::core {

namespace {

struct StagePeak {
  int stage;
  std::int64_t in_flight;
};

// Of all stages of this rank, per microbatch.
double active_flops_here(Pipeline& pipeline) {
  double flops = 0;
  for (const LocalStage& stage : pipeline.stages()) {
    if (!stage.model) continue;
    const KokkosStageOptions& options = stage.model->options();
    flops += active_flops_per_microbatch(options.model, options.shape, options.layers, options.replication);
  }
  return flops;
}

// Gradients under way to other replicas, and the part of it that no computation hid.
ExchangeSeconds exchange_seconds(Pipeline& pipeline) {
  ExchangeSeconds seconds;
  for (const LocalStage& stage : pipeline.stages()) {
    if (!stage.exchange) continue;
    seconds.total += stage.exchange->gradient_seconds().total;
    seconds.exposed += stage.exchange->gradient_seconds().exposed;
  }
  return seconds;
}

template <class T>
std::vector<T> first_of_each(const std::vector<std::vector<T>>& ranks) {
  std::vector<T> result;
  for (const auto& rank : ranks) result.push_back(rank.front());
  return result;
}

}  // namespace

PlannedMemory Trainer::memory_here() {
  PlannedMemory memory;
  for (LocalStage& stage : pipeline_->stages()) {
    memory.comm += static_cast<std::size_t>(stage.message_bytes());
    if (stage.exchange) memory.comm += stage.exchange->bytes();
    if (stage.model) memory.stage += stage.model->bytes();
  }
  return memory;
}

Summary Trainer::summarise() {
  const GemmShape shape = largest_hidden_gemm(model_config(deck_), train_shape(deck_));
  const bool real = !deck_.emulate.enabled;
  const auto measure = precision_of(deck_) == Precision::bf16 ? measure_gemm_rate<bf16> : measure_gemm_rate<float>;
  const double rate = real ? measure(ExecutionSpace(), shape.m, shape.n, shape.k) : 0;
  const auto rates = first_of_each(gather(comm_.get(), std::vector<double>{rate}));
  const auto active_flops = first_of_each(gather(comm_.get(), std::vector<double>{active_flops_here(*pipeline_)}));
  const auto memory = first_of_each(gather(comm_.get(), std::vector<PlannedMemory>{memory_here()}));
  const auto exchanges = first_of_each(gather(comm_.get(), std::vector<ExchangeSeconds>{exchange_seconds(*pipeline_)}));
  const auto sent = first_of_each(gather(comm_.get(), std::vector<SentBytes>{pipeline_->sent()}));
  std::vector<StagePeak> peaks;
  for (const LocalStage& stage : pipeline_->stages()) peaks.push_back({stage.index, stage.executor->peak_in_flight()});
  const auto all_peaks = gather(comm_.get(), peaks);
  lap(seconds_.other);
  seconds_.wall = lap_;
  const auto seconds = first_of_each(gather(comm_.get(), std::vector<RankSeconds>{seconds_}));

  Summary summary;
  summary.schedule = deck_.schedule.name;
  summary.ranks = place_.ranks;
  summary.stages = place_.stages();
  summary.replicas = deck_.parallel.data;
  summary.steps = update_;
  summary.done = complete();
  summary.case_number = deck_.case_number;
  summary.swept = deck_.swept;
  if (place_.rank != 0) return summary;

  const double updates = static_cast<double>(update_ - first_update_);
  const double training = std::max_element(seconds.begin(), seconds.end(), [](const auto& a, const auto& b) {
                            return a.training < b.training;
                          })->training;
  double compute = 0;
  double busy = 0;
  for (const RankSeconds& rank : seconds) {
    compute += rank.compute;
    busy += rank.compute + rank.update;
  }
  const double rank_seconds = training * place_.ranks;
  if (updates > 0) {
    summary.tokens_per_s = static_cast<double>(training_tokens_) / training;
    summary.step_time_s = training / updates;
    summary.compute_share = compute / rank_seconds;
    double wait = 0;
    for (const RankSeconds& rank : seconds) wait += rank.wait_input;
    summary.wait_share = wait / rank_seconds;
    summary.bubble_share = 1 - busy / rank_seconds;
  }
  if (steady_.seconds > 0) {
    summary.numbers["schedule_tokens_per_s"] = static_cast<double>(steady_.tokens) / steady_.seconds;
    summary.numbers["schedule_bubble_share"] = 1 - steady_.compute_s / (steady_.seconds * place_.ranks);
  }
  if (real && updates > 0) {
    const double flops =
        std::accumulate(active_flops.begin(), active_flops.end(), 0.0) * static_cast<double>(deck_.train.microbatches);
    const double all_rates = std::accumulate(rates.begin(), rates.end(), 0.0) * 1e9;
    summary.gemm_fraction = flops / (summary.step_time_s * all_rates);
    summary.numbers["gemm_gflops"] = all_rates * 1e-9;
    summary.numbers["flops_per_update"] = flops;
    summary.numbers["model_flops_per_update"] =
        flops_per_microbatch(model_config(deck_), train_shape(deck_)) * static_cast<double>(microbatches_per_update(deck_));
  }
  double under_way = 0;
  double exposed = 0;
  for (const ExchangeSeconds& rank : exchanges) {
    under_way += rank.total;
    exposed += rank.exposed;
  }
  if (under_way > 0) summary.numbers["exchange_hidden_share"] = 1 - exposed / under_way;
  schedules::MessageWaits messages;
  for (const schedules::MessageWaits& rank : message_waits_) {
    messages += rank;
    summary.message_wait_seconds.push_back(rank.seconds);
  }
  if (messages.received > 0) {
    summary.numbers["messages_hidden_share"] = static_cast<double>(messages.hidden) / static_cast<double>(messages.received);
    summary.numbers["message_wait_share"] = messages.seconds / rank_seconds;
  }
  if (real) {
    summary.final_loss = final_loss_;
    summary.validation_loss = validation_loss_;
  }
  for (const PlannedMemory& rank : memory) summary.peak_bytes.push_back(rank.total());
  for (const SentBytes& rank : sent) {
    for (const auto& [purpose, bytes] : rank.purposes()) {
      summary.sent_bytes_per_update[purpose].push_back(updates > 0 ? static_cast<double>(bytes) / updates : 0.0);
    }
  }
  for (const Histogram& gaps : versions_.gaps()) {
    summary.version_gap_max.push_back(largest(gaps));
    summary.version_gap_mean.push_back(mean(gaps));
  }
  for (const Histogram& delays : versions_.delays()) {
    summary.gradient_delay_max.push_back(largest(delays));
    summary.gradient_delay_mean.push_back(mean(delays));
  }
  summary.numbers["forward_skew_max"] = static_cast<double>(largest(versions_.skew()));
  for (const RankSeconds& rank : seconds) {
    for (const auto& [name, value] : rank.purposes()) summary.seconds[name].push_back(value);
    summary.seconds["wall"].push_back(rank.wall);
  }
  for (const schedules::BubbleSplit& rank : schedules::bubble_split(last_log_)) {
    summary.bubble_seconds["warm_up"].push_back(rank.warm_up);
    summary.bubble_seconds["residual"].push_back(rank.residual);
    summary.bubble_seconds["cool_down"].push_back(rank.cool_down);
  }
  summary.peak_in_flight.assign(static_cast<std::size_t>(place_.stages()), 0);
  for (const auto& rank : all_peaks) {
    for (const StagePeak& peak : rank) {
      summary.peak_in_flight[peak.stage] = std::max(summary.peak_in_flight[peak.stage], peak.in_flight);
    }
  }
  trace_->write_versions({versions_.gaps(), versions_.delays(), versions_.skew()});
  for (std::size_t r = 0; r < memory.size(); ++r) {
    const auto categories = memory[r].categories();
    trace_->write_memory(static_cast<int>(r), {categories.begin(), categories.end()});
    for (const auto& [category, bytes] : categories) summary.bytes[category].push_back(bytes);
  }
  trace_->flush();
  return summary;
}

void Trainer::finish() {
  if (progress_) progress_->finish();
  const Summary summary = summarise();
  agree(comm_.get(), [&] {
    if (place_.rank != 0) return;
    if (!last_log_.ranks.empty()) {
      // The links of [emulate] are there in an emulated run only.
      const auto links = deck_.emulate.enabled ? emulated_costs(deck_, place_.stages()) : schedules::Costs();
      const schedules::Log predicted = predict(last_log_, schedule_options(deck_, place_.stages()), links);
      write_chrome_trace(folder_.timeline(), {{"measured", &last_log_}, {"predicted", &predicted}});
    }
    write_summary(folder_.summary(), summary);
  });
  control_->finish();
  check(MPI_Barrier(comm_.get()), "ending together");
  // Last on standard output, after every other rank's lines.
  if (place_.rank == 0) std::cout << to_json(summary) << std::endl;
}

}  // namespace minipipe::core
