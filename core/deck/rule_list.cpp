#include "core/deck/rule_list.hpp"

#include <cstdio>

#include "core/deck/schema.hpp"
#include "core/deck/text.hpp"

namespace minipipe::core {

void Rules::require(bool holds, std::string_view block, std::string_view key, const std::string& what) {
  if (holds) return;
  const Entry* entry = find_entry(block, key);
  add(block, key, entry->name() + " = " + shortened(to_toml(entry->get(deck_))) + ": " + what);
}

void Rules::add(std::string_view block, std::string_view key, const std::string& line) {
  const auto origin = deck_.origins.find(find_entry(block, key)->name());
  if (!text_.empty()) text_ += '\n';
  if (origin != deck_.origins.end()) text_ += origin->second + ": ";
  text_ += line;
}

std::string str(std::int64_t value) { return std::to_string(value); }

std::string plural(std::int64_t count, const std::string& noun) {
  return str(count) + " " + noun + (count == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

std::string bytes_text(double bytes) {
  const char* unit = "KiB";
  double value = bytes / 1024;
  for (const char* larger : {"MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = larger;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %s", value, unit);
  return text;
}

}  // namespace minipipe::core
