#pragma once

#include <filesystem>
#include <string>

#include "schedules/plan/plan.hpp"

namespace minipipe::core {

// Action logs in Chrome's trace event format (chrome://tracing, ui.perfetto.dev): one complete event per action, named like
// F12, times in microseconds; thread = stage; process 0 = measured, process 1 = predicted (if given), so that they lie one
// above the other.
std::string chrome_trace(const schedules::Log& measured, const schedules::Log* predicted = nullptr);

// The same, to a file, durably (RunError).
void write_chrome_trace(const std::filesystem::path& file, const schedules::Log& measured,
                        const schedules::Log* predicted = nullptr);

}  // namespace minipipe::core
