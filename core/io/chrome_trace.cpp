#include "core/io/chrome_trace.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "core/io/durable.hpp"

namespace minipipe::core {

namespace {

using schedules::LoggedAction;

// Appends events to a JSON array. Logs hold millions of actions, so the text is built directly: all its parts are numbers and
// fixed letters, nothing needs escaping.
class Events {
 public:
  void name(int process, std::string_view text) {
    begin();
    text_ += R"({"ph":"M","name":"process_name","pid":)" + std::to_string(process) + R"(,"args":{"name":")" +
             std::string(text) + "\"}}";
  }
  void name(int process, int stage, std::size_t rank) {
    const std::string ids = R"("pid":)" + std::to_string(process) + R"(,"tid":)" + std::to_string(stage);
    begin();
    text_ += R"({"ph":"M","name":"thread_name",)" + ids + R"(,"args":{"name":"stage )" + std::to_string(stage) + " (rank " +
             std::to_string(rank) + ")\"}}";
    begin();
    text_ += R"({"ph":"M","name":"thread_sort_index",)" + ids + R"(,"args":{"sort_index":)" + std::to_string(stage) + "}}";
  }
  void action(int process, const LoggedAction& entry) {
    const std::string letters(schedules::letters(entry.action.kind));
    begin();
    text_ += R"({"ph":"X","name":")" + letters + std::to_string(entry.action.microbatch) + R"(","cat":")" + letters +
             R"(","pid":)" + std::to_string(process) + R"(,"tid":)" + std::to_string(entry.action.stage) + R"(,"ts":)" +
             microseconds(entry.start_s) + R"(,"dur":)" + microseconds(std::max(0.0, entry.end_s - entry.start_s)) +
             R"(,"args":{"microbatch":)" + std::to_string(entry.action.microbatch) + R"(,"version":)" +
             std::to_string(entry.version) + "}}";
  }
  std::string finish() { return R"({"displayTimeUnit":"ms","traceEvents":[)" + text_ + "\n]}\n"; }

 private:
  void begin() { text_ += text_.empty() ? "\n" : ",\n"; }
  static std::string microseconds(double seconds) {
    char digits[64];
    std::snprintf(digits, sizeof digits, "%.3f", std::isfinite(seconds) ? seconds * 1e6 : 0.0);
    return digits;
  }

  std::string text_;
};

void add_log(Events& events, int process, std::string_view name, const schedules::Log& log) {
  events.name(process, name);
  std::map<int, std::size_t> rank_of_stage;
  for (std::size_t rank = 0; rank < log.ranks.size(); ++rank) {
    for (const LoggedAction& entry : log.ranks[rank]) rank_of_stage.emplace(entry.action.stage, rank);
  }
  for (const auto& [stage, rank] : rank_of_stage) events.name(process, stage, rank);
  for (const auto& rank : log.ranks) {
    for (const LoggedAction& entry : rank) events.action(process, entry);
  }
}

}  // namespace

std::string chrome_trace(const std::vector<NamedLog>& logs) {
  Events events;
  for (std::size_t i = 0; i < logs.size(); ++i) add_log(events, static_cast<int>(i), logs[i].name, *logs[i].log);
  return events.finish();
}

void write_chrome_trace(const std::filesystem::path& file, const std::vector<NamedLog>& logs) {
  write_text(file, chrome_trace(logs));
}

}  // namespace minipipe::core
