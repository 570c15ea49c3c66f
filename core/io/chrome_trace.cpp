#include "core/io/chrome_trace.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/io/durable.hpp"

namespace minipipe::core {

namespace {

using schedules::LoggedAction;

// Appends events to a JSON array. Logs hold millions of actions, so the text is built directly: all its parts are numbers and
// fixed letters, nothing needs escaping.
class Events {
 public:
  void name(int process, const char* text) {
    begin();
    text_ += R"({"ph":"M","name":"process_name","pid":)" + std::to_string(process) + R"(,"args":{"name":")" + text + "\"}}";
  }
  void name(int process, int stage) {
    const std::string ids = R"("pid":)" + std::to_string(process) + R"(,"tid":)" + std::to_string(stage);
    begin();
    text_ += R"({"ph":"M","name":"thread_name",)" + ids + R"(,"args":{"name":"stage )" + std::to_string(stage) + "\"}}";
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

void add_log(Events& events, int process, const char* name, const schedules::Log& log) {
  events.name(process, name);
  int stages = 0;
  for (const auto& rank : log.ranks) {
    for (const LoggedAction& entry : rank) stages = std::max(stages, entry.action.stage + 1);
  }
  for (int stage = 0; stage < stages; ++stage) events.name(process, stage);
  for (const auto& rank : log.ranks) {
    for (const LoggedAction& entry : rank) events.action(process, entry);
  }
}

}  // namespace

std::string chrome_trace(const schedules::Log& measured, const schedules::Log* predicted) {
  Events events;
  add_log(events, 0, "measured", measured);
  if (predicted != nullptr) add_log(events, 1, "predicted", *predicted);
  return events.finish();
}

void write_chrome_trace(const std::filesystem::path& file, const schedules::Log& measured, const schedules::Log* predicted) {
  write_text(file, chrome_trace(measured, predicted));
}

}  // namespace minipipe::core
