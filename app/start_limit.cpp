#include "app/start_limit.hpp"

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include "schedules/error.hpp"

namespace minipipe::app {

namespace {

// Negative: not set; none: no number of 0 or more.
std::optional<double> value_of(const char* text) {
  if (text == nullptr) return -1;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (end == text || *end != '\0' || !std::isfinite(seconds) || seconds < 0) return std::nullopt;
  return seconds;
}

}  // namespace

double start_limit() {
  constexpr double usual = 300;
  const double seconds = value_of(std::getenv(start_limit_variable)).value_or(-1);
  return seconds < 0 ? usual : seconds;
}

void check_start_limit() {
  const char* text = std::getenv(start_limit_variable);
  if (value_of(text)) return;
  throw InputError(std::string("environment variable ") + start_limit_variable + "=" + text +
                   ": is not a number of seconds; set it to a number of 0 or more (0: no limit), or unset it for 300");
}

}  // namespace minipipe::app
