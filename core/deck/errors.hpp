#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace minipipe::core {

// Errors found while reading a deck, to be reported together: those of the file by line, then those of the command line.
class Errors {
 public:
  explicit Errors(std::string file_name) : file_name_(std::move(file_name)) {}

  void add(std::int64_t line, const std::string& what);
  void add_override(const std::string& what);

  // Throws InputError with one line per error.
  void throw_if_any() const;

 private:
  std::string file_name_;
  std::vector<std::pair<std::int64_t, std::string>> in_file_;
  std::vector<std::string> on_command_line_;
};

}  // namespace minipipe::core
