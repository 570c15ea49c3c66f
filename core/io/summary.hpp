#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace minipipe::core {

// The result of a run: summary.json, and the last line on standard output. NaN and infinities become null.
struct Summary {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

  std::string schedule;
  int ranks = 1;
  int stages = 1;
  int replicas = 1;
  std::int64_t steps = 0;
  bool done = false;  // all updates of the deck, not stopped early
  // The case of a sweep, -1 for none, and its values: block.key and the value as JSON.
  std::int64_t case_number = -1;
  std::vector<std::pair<std::string, std::string>> swept;
  double tokens_per_s = unknown;
  double step_time_s = unknown;
  double compute_share = unknown;  // shares of the time of all stages, 0 to 1
  double wait_share = unknown;
  double bubble_share = unknown;
  double gemm_fraction = unknown;
  double final_loss = unknown;
  double validation_loss = unknown;
  std::vector<std::uint64_t> peak_bytes;                             // by rank
  std::vector<std::int64_t> version_gap_max;                         // by stage, updates
  std::vector<double> version_gap_mean;                              // by stage
  std::vector<std::int64_t> gradient_delay_max;                      // by stage, updates
  std::vector<double> gradient_delay_mean;                           // by stage
  std::vector<std::int64_t> peak_in_flight;                          // by stage, activations of microbatches
  std::map<std::string, std::vector<double>> seconds;                // purpose -> by rank
  std::map<std::string, std::vector<std::uint64_t>> bytes;           // of peak_bytes, category -> by rank
  std::map<std::string, std::vector<double>> sent_bytes_per_update;  // purpose -> by rank; without evaluations
  // Idle time in the last segment, by rank of the schedule: before the first backward, between, after the last forward.
  std::map<std::string, std::vector<double>> bubble_seconds;
  // By rank: idle although the message between stages that the rank went on with had been sent (schedules::MessageWaits).
  std::vector<double> message_wait_seconds;
  // Further keys, after those above. A key that is already there is a programming error (RunError).
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> texts;
};

// One line, no newline at its end.
std::string to_json(const Summary& summary);

// The values of a case as one JSON object.
std::string swept_json(const std::vector<std::pair<std::string, std::string>>& swept);

// Whether the file is the summary of a run that has done all its updates, `steps` of them. False if it is not there.
bool says_done(const std::filesystem::path& file, std::int64_t steps);

// Writes the line to a file, durably.
void write_summary(const std::filesystem::path& file, const Summary& summary);

}  // namespace minipipe::core
