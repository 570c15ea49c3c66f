#include "schedules/sdp/random_masks.hpp"

#include <utility>
#include <vector>

#include "schedules/sdp/generator.hpp"

namespace minipipe::schedules {
namespace {

using Edge = std::pair<int, int>;  // worker, unit

// The assignment as a list of (worker, unit) and as a table that tells whether a pair is in it.
class Table {
 public:
  Table(int workers, int units)
      : workers_(workers), units_(units), held_(static_cast<std::size_t>(workers) * static_cast<std::size_t>(units), 0) {}

  void add(int worker, int unit) {
    edges_.push_back({worker, unit});
    held(worker, unit) = 1;
  }

  // Two workers exchange two units that the other does not hold: what workers and units count stays (the classical chain of
  // 2x2 swaps of binary matrices with given margins, Ryser 1957).
  void try_swap(Generator& generator) {
    const int count = static_cast<int>(edges_.size());
    Edge& a = edges_[static_cast<std::size_t>(generator.below(count))];
    Edge& b = edges_[static_cast<std::size_t>(generator.below(count))];
    if (held(a.first, b.second) != 0 || held(b.first, a.second) != 0) return;
    held(a.first, a.second) = held(b.first, b.second) = 0;
    held(a.first, b.second) = held(b.first, a.second) = 1;
    std::swap(a.second, b.second);
  }

  std::size_t size() const { return edges_.size(); }

  Masks masks() const {
    Masks result{workers_, std::vector<std::vector<int>>(static_cast<std::size_t>(units_))};
    for (int unit = 0; unit < units_; ++unit) {
      for (int worker = 0; worker < workers_; ++worker) {
        if (held_[place(worker, unit)] != 0) result.holders[static_cast<std::size_t>(unit)].push_back(worker);
      }
    }
    return result;
  }

 private:
  std::size_t place(int worker, int unit) const {
    return static_cast<std::size_t>(worker) * static_cast<std::size_t>(units_) + static_cast<std::size_t>(unit);
  }
  char& held(int worker, int unit) { return held_[place(worker, unit)]; }

  int workers_;
  int units_;
  std::vector<Edge> edges_;
  std::vector<char> held_;
};

}  // namespace

Masks shuffled(const Masks& start, std::uint64_t seed) {
  Generator generator(Generator::mixed(seed));
  const std::vector<int> worker_name = generator.permutation(start.workers);
  const std::vector<int> unit_name = generator.permutation(start.units());
  Table table(start.workers, start.units());
  for (int unit = 0; unit < start.units(); ++unit) {
    for (const int worker : start.holders[static_cast<std::size_t>(unit)]) {
      table.add(worker_name[static_cast<std::size_t>(worker)], unit_name[static_cast<std::size_t>(unit)]);
    }
  }
  const Masks relabelled = table.masks();

  // Many swaps between looks, so that the first connected assignment is hardly like the start. Where nearly all assignments
  // fall apart (a graph that is almost a tree), the relabelled start remains.
  constexpr int looks = 64;
  constexpr std::size_t tries_per_pair = 16;
  for (int look = 0; look < looks; ++look) {
    for (std::size_t i = 0; i < tries_per_pair * table.size(); ++i) table.try_swap(generator);
    Masks found = table.masks();
    if (connected(found)) return found;
  }
  return relabelled;
}

}  // namespace minipipe::schedules
