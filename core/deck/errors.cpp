#include "core/deck/errors.hpp"

#include <algorithm>

#include "schedules/error.hpp"

namespace minipipe::core {

void Errors::add(std::int64_t line, const std::string& what) { in_file_.emplace_back(line, what); }

void Errors::add_override(const std::string& what) { on_command_line_.push_back("command line: " + what); }

void Errors::throw_if_any() const {
  auto sorted = in_file_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> lines;
  for (const auto& [line, what] : sorted) lines.push_back(file_name_ + ":" + std::to_string(line) + ": " + what);
  lines.insert(lines.end(), on_command_line_.begin(), on_command_line_.end());
  if (lines.empty()) return;
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  throw InputError(text);
}

}  // namespace minipipe::core
