#include "app/start_limit.hpp"

#include <cmath>
#include <cstdlib>

namespace minipipe::app {

double start_limit() {
  constexpr double usual = 300;
  const char* text = std::getenv(start_limit_variable);
  if (text == nullptr) return usual;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  return end != text && *end == '\0' && std::isfinite(seconds) && seconds >= 0 ? seconds : usual;
}

}  // namespace minipipe::app
