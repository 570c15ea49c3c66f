#include <algorithm>
#include <vector>

#include "schedules/generate/generators.hpp"

namespace minipipe::schedules {
namespace {

struct Pass {
  int chunk;
  std::int64_t microbatch;
};

// The order in which a rank takes its passes: `ranks` microbatches through one chunk, then through the next. Backwards go
// through the chunks the other way round.
std::vector<Pass> passes(int ranks, int chunks, std::int64_t m, bool backward) {
  std::vector<Pass> result;
  for (std::int64_t first = 0; first < m; first += ranks) {
    for (int c = 0; c < chunks; ++c) {
      for (std::int64_t k = first; k < first + ranks; ++k) result.push_back({backward ? chunks - 1 - c : c, k});
    }
  }
  return result;
}

}  // namespace

Plan interleaved_update(int ranks, int chunks, std::int64_t m) {
  Plan plan;
  const std::vector<Pass> forwards = passes(ranks, chunks, m, false);
  const std::vector<Pass> backwards = passes(ranks, chunks, m, true);
  for (int rank = 0; rank < ranks; ++rank) {
    ActionList& list = plan.ranks.emplace_back();
    const auto add = [&](Kind kind, const Pass& pass) {
      // Leaving out whole microbatches of a legal order leaves a legal one: nothing waits for another microbatch.
      if (pass.microbatch < m) list.push_back({kind, pass.chunk * ranks + rank, pass.microbatch});
    };
    const int behind = ranks - 1 - rank;
    const auto wanted = static_cast<std::size_t>(chunks == 1 ? behind : 2 * behind + (chunks - 1) * ranks);
    const std::size_t warm = std::min(wanted, forwards.size());
    for (std::size_t k = 0; k < warm; ++k) add(Kind::forward, forwards[k]);
    for (std::size_t k = 0; k < backwards.size(); ++k) {
      if (warm + k < forwards.size()) add(Kind::forward, forwards[warm + k]);
      add(Kind::backward, backwards[k]);
    }
    for (int chunk = 0; chunk < chunks; ++chunk) list.push_back({Kind::update, chunk * ranks + rank, 0});
  }
  return plan;
}

}  // namespace minipipe::schedules
