#include "core/bench/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "schedules/error.hpp"

namespace minipipe::core {

Quartiles quartiles(std::vector<double> samples) {
  if (samples.empty()) throw RunError("quartiles of no samples");
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(samples.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, samples.size() - 1);
    const double weight = place - static_cast<double>(below);
    return (1 - weight) * samples[below] + weight * samples[above];
  };
  return {at(0.25), at(0.5), at(0.75)};
}

Timing measure(const ExecutionSpace& space, int repeat, const std::function<void()>& work) {
  const auto row = [&](int calls) {
    fence(space, "before the clock starts");
    const Kokkos::Timer timer;
    for (int i = 0; i < calls; ++i) work();
    fence(space, "before the clock is read");
    return timer.seconds();
  };
  work();
  Timing result;
  double once = row(1);
  // A single short call may have been disturbed: the row is made as long as its own time says.
  while (once * result.calls < shortest_sample) {
    result.calls = std::min(2 * result.calls, 1 << 20);
    once = row(result.calls) / result.calls;
    if (result.calls == 1 << 20) break;
  }
  std::vector<double> samples;
  for (int i = 0; i < repeat; ++i) samples.push_back(row(result.calls) / result.calls);
  result.best = *std::min_element(samples.begin(), samples.end());
  result.seconds = quartiles(std::move(samples));
  return result;
}

}  // namespace minipipe::core
