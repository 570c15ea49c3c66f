#include "schedules/sdp/masks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>

#include "schedules/error.hpp"
#include "schedules/sdp/random_masks.hpp"

namespace minipipe::schedules {
namespace {

std::string str(std::int64_t value) { return std::to_string(value); }

std::string short_number(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.6g", value);
  return buffer;
}

// The fewest units a worker has to hold. A connected graph of workers and units needs workers + units - 1 pairs, so
// K >= 1 + (units - 1) / workers. That is enough for the cyclic assignment: neighbours share a unit if K exceeds the distance
// of their starts, at most ceil(units / workers), and if units = 1 modulo workers only one distance is that long: the circle
// may be cut once.
int fewest_units(int workers, int units) { return workers == 1 ? units : 1 + (units - 1 + workers - 1) / workers; }

// The numbers of a coverage that does not do, what is wrong with it and the smallest one that does.
[[noreturn]] void refuse(const MaskOptions& options, int held, const std::string& what) {
  const int fewest = fewest_units(options.workers, options.units);
  // Rounded up: it must not fall back to one unit fewer.
  const double coverage = std::min(1.0, std::ceil(1e4 * fewest / options.units) / 1e4);
  const std::string replicas =
      options.workers == 1 ? "1 replica that holds " : str(options.workers) + " replicas that each hold ";
  throw InputError("sdp.coverage = " + short_number(options.coverage) + ": " + replicas + str(held) + " of " +
                   str(options.units) + " units " + what + "; the smallest coverage that works here is " +
                   short_number(coverage) + " (" + str(fewest) + " of " + str(options.units) + " units each)");
}

// The starts floor(w units / workers) are a Beatty sequence, so the starts that lie in a window of K units are
// ceil((a + K) workers / units) - ceil(a workers / units) for a window from a on: floor(K workers / units) or one more. A
// unit's holders are the workers that start in the K units up to it, hence the balance.
Masks cyclic_masks(int workers, int units, int held) {
  Masks masks{workers, std::vector<std::vector<int>>(static_cast<std::size_t>(units))};
  for (int worker = 0; worker < workers; ++worker) {
    const std::int64_t start = static_cast<std::int64_t>(worker) * units / workers;
    for (int k = 0; k < held; ++k) masks.holders[static_cast<std::size_t>((start + k) % units)].push_back(worker);
  }
  return masks;
}

}  // namespace

bool Masks::holds(int worker, int unit) const {
  const std::vector<int>& list = holders[static_cast<std::size_t>(unit)];
  return std::binary_search(list.begin(), list.end(), worker);
}

std::vector<int> Masks::units_of(int worker) const {
  std::vector<int> result;
  for (int unit = 0; unit < units(); ++unit) {
    if (holds(worker, unit)) result.push_back(unit);
  }
  return result;
}

int units_per_worker(const MaskOptions& options) {
  return std::max(1, static_cast<int>(std::lround(options.coverage * options.units)));
}

Masks make_masks(const MaskOptions& options) {
  if (options.workers < 1 || options.units < 1) {
    throw InputError("subnetwork data parallelism needs at least one replica and one unit, not " + str(options.workers) +
                     " and " + str(options.units));
  }
  if (!(options.coverage > 0.0 && options.coverage <= 1.0)) {
    throw InputError("sdp.coverage = " + short_number(options.coverage) +
                     ": is not in (0, 1]; it is the share of the units that a replica holds, 1 for all");
  }
  const int held = units_per_worker(options);
  const std::int64_t pairs = static_cast<std::int64_t>(options.workers) * held;
  if (pairs < options.units)
    refuse(options, held, (options.workers == 1 ? "leaves " : "leave ") + str(options.units - pairs) + " held by nobody");
  if (held < fewest_units(options.workers, options.units)) {
    refuse(options, held, "share too few of them: parts of the model would never meet");
  }
  Masks masks = cyclic_masks(options.workers, options.units, held);
  if (options.generator == MaskGenerator::random && held < options.units) masks = shuffled(masks, options.seed);
  return masks;
}

Masks full_masks(int workers, int units) {
  std::vector<int> all(static_cast<std::size_t>(workers));
  std::iota(all.begin(), all.end(), 0);
  return {workers, std::vector<std::vector<int>>(static_cast<std::size_t>(units), all)};
}

bool connected(const Masks& masks) {
  // Union of sets of workers: the holders of a unit belong together.
  std::vector<int> parent(static_cast<std::size_t>(masks.workers));
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&parent](int worker) {
    while (parent[static_cast<std::size_t>(worker)] != worker) {
      int& up = parent[static_cast<std::size_t>(worker)];
      up = parent[static_cast<std::size_t>(up)];
      worker = up;
    }
    return worker;
  };
  int sets = masks.workers;
  for (const std::vector<int>& holders : masks.holders) {
    for (const int worker : holders) {
      const int a = root(holders.front());
      const int b = root(worker);
      if (a == b) continue;
      parent[static_cast<std::size_t>(b)] = a;
      --sets;
    }
  }
  return sets == 1;
}

double masking_error(const Masks& masks) {
  if (masks.holders.empty()) return 0.0;
  double pairs = 0.0;
  for (const std::vector<int>& holders : masks.holders) pairs += static_cast<double>(holders.size());
  const double mean = pairs / masks.units();
  double squares = 0.0;
  for (const std::vector<int>& holders : masks.holders) {
    const double deviation = static_cast<double>(holders.size()) / mean - 1.0;
    squares += deviation * deviation;
  }
  return std::sqrt(squares / masks.units());
}

std::string to_text(const Masks& masks) {
  std::vector<int> all(static_cast<std::size_t>(masks.workers));
  std::iota(all.begin(), all.end(), 0);
  return to_text(masks, all);
}

std::string to_text(const Masks& masks, const std::vector<int>& workers) {
  const std::size_t width = str(masks.workers).size();
  const std::size_t label = std::max(std::string("holders").size(), ("replica " + str(masks.workers - 1)).size());
  const auto padded = [](std::string text, std::size_t size) { return text.append(size - std::min(size, text.size()), ' '); };
  std::string text;
  for (const int worker : workers) {
    text += padded("replica " + str(worker), label) + " ";
    for (int unit = 0; unit < masks.units(); ++unit) {
      text += std::string(width, ' ') + (masks.holds(worker, unit) ? "#" : ".");
    }
    text += '\n';
  }
  text += padded("holders", label) + " ";
  for (const std::vector<int>& holders : masks.holders) {
    const std::string count = str(static_cast<std::int64_t>(holders.size()));
    text += std::string(width + 1 - count.size(), ' ') + count;
  }
  return text + '\n';
}

}  // namespace minipipe::schedules
