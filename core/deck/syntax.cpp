#include "core/deck/syntax.hpp"

#include <algorithm>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

namespace minipipe::core {
namespace {

// Marks the end of a name in an alias; no key can contain it unescaped.
constexpr char mark = '\x01';

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// A quoted key that original_name turns back into `name`, different for every line.
std::string alias(const std::string& name, std::size_t line) { return "\"" + name + "\\u0001" + std::to_string(line) + "\""; }

// The name in `[name`, if the line is the header of a block (complete or not).
std::optional<std::string> header_name(const std::string& line) {
  static const std::regex header(R"(^\s*\[\s*([A-Za-z0-9_-]+).*)");
  std::smatch match;
  if (!std::regex_match(line, match, header)) return std::nullopt;
  return match[1];
}

// Makes the parse errors of one text into messages, and the text into one that can be parsed further.
class Repair {
 public:
  Repair(std::vector<std::string>& lines, Errors& errors) : lines_(lines), errors_(errors) {}

  // False if nothing after this error can be trusted.
  bool operator()(const toml::parse_error& error) {
    const std::string description(error.description());
    const std::size_t line = std::clamp<std::size_t>(error.source().begin.line, 1, lines_.size());
    if (contains(description, "cannot redefine") && redefinition(description, line)) return true;
    return syntax(description, line, error.source().begin.column);
  }

 private:
  bool redefinition(const std::string& description, std::size_t line) {
    if (const auto name = header_name(lines_[line - 1])) {
      errors_.add(line, "[" + *name + "]: repeated block; put all its keys below one header");
      lines_[line - 1] = "[" + alias(*name, line) + "]";
      return true;
    }
    const auto begin = description.find('\'');
    const auto end = description.rfind('\'');
    if (begin == std::string::npos || end <= begin) return false;
    // The error is at the end of the value, which may be a list over several lines. The reader reports the alias.
    const std::string key = description.substr(begin + 1, end - begin - 1);
    const std::string bare = key.substr(key.rfind('.') == std::string::npos ? 0 : key.rfind('.') + 1);
    for (std::size_t at = line; at >= 1; --at) {
      std::string& text = lines_[at - 1];
      const auto first = text.find_first_not_of(" \t");
      const auto equals = text.find('=');
      if (first == std::string::npos || equals == std::string::npos) continue;
      if (text.substr(first, text.find_last_not_of(" \t", equals - 1) - first + 1) != bare) continue;
      text = alias(bare, at) + " " + text.substr(equals);
      return true;
    }
    return false;
  }

  bool syntax(const std::string& description, std::size_t line, std::size_t column) {
    std::string& text = lines_[line - 1];
    std::string what = description;
    constexpr std::string_view prefix = "Error while parsing ";
    if (what.rfind(prefix, 0) == 0) what = what.substr(prefix.size());
    std::string message = "not valid TOML at column " + std::to_string(column) + ": " + what;
    if (unquoted_word(text)) message += "; strings need quotes";
    errors_.add(static_cast<std::int64_t>(line), message);

    const bool first_time = repaired_.insert(line).second;
    if (const auto name = header_name(text); name && first_time && !contains(text, "=")) {
      text = "[" + alias(*name, line) + "]";
      return true;
    }
    // An open list or string takes in the lines below it, whatever they say.
    const bool open = contains(description, "end-of-file") ||
                      ((contains(description, "array") || contains(description, "inline table")) && !closed(text));
    text.clear();
    return first_time && !open;
  }

  // The line opens a list or a table itself and closes it again.
  static bool closed(const std::string& text) {
    const auto count = [&text](char c) { return std::count(text.begin(), text.end(), c); };
    return count('[') + count('{') > 0 && count('[') <= count(']') && count('{') <= count('}');
  }

  static bool unquoted_word(const std::string& text) {
    static const std::regex word(R"(^[^=]*=\s*[A-Za-z0-9_./-]*[A-Za-z_/][A-Za-z0-9_./-]*\s*(#.*)?\r?$)");
    return std::regex_match(text, word);
  }

  std::vector<std::string>& lines_;
  Errors& errors_;
  std::set<std::size_t> repaired_;
};

}  // namespace

toml::table parse_toml(const std::string& text, Errors& errors) {
  std::vector<std::string> lines = split_lines(text);
  if (lines.empty()) return {};
  Repair repair(lines, errors);
  // Every pass mends one line, so the passes are bounded.
  for (std::size_t pass = 0; pass <= 2 * lines.size(); ++pass) {
    try {
      return toml::parse(joined(lines));
    } catch (const toml::parse_error& error) {
      if (!repair(error)) return {};
    }
  }
  return {};
}

std::string original_name(const std::string& name) { return name.substr(0, name.find(mark)); }

}  // namespace minipipe::core
