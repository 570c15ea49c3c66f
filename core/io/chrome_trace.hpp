#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/plan/plan.hpp"

namespace minipipe::core {

// A log and what to call it ("measured", "predicted", "simulated"; letters only). Borrows the log.
struct NamedLog {
  std::string_view name;
  const schedules::Log* log;
};

// Action logs in Chrome's trace event format (chrome://tracing, ui.perfetto.dev): one complete event per action, named like
// F12, times in microseconds; a process per log, in their order, so that they lie one above the other; a thread per stage,
// named with its rank.
std::string chrome_trace(const std::vector<NamedLog>& logs);

// The same, to a file, durably (RunError).
void write_chrome_trace(const std::filesystem::path& file, const std::vector<NamedLog>& logs);

}  // namespace minipipe::core
