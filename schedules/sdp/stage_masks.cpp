#include "schedules/sdp/stage_masks.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "schedules/sdp/generator.hpp"

namespace minipipe::schedules {
namespace {

// Worker w takes the place stride w + block of the cyclic assignment, stride without a common divisor with the number of
// workers: neighbours on the circle, which share most, are then other pairs in other blocks (from five workers on), and the
// longest distance of two starts lies elsewhere. A shift of units would do neither: the same pairs would share.
Masks turned(const Masks& masks, int block) {
  std::vector<int> strides;
  for (int stride = 1; stride <= std::max(1, masks.workers / 2); ++stride) {
    if (std::gcd(stride, masks.workers) == 1) strides.push_back(stride);
  }
  const std::int64_t stride = strides[static_cast<std::size_t>(block) % strides.size()];
  std::vector<int> worker_at(static_cast<std::size_t>(masks.workers));
  for (int worker = 0; worker < masks.workers; ++worker) {
    worker_at[static_cast<std::size_t>((stride * worker + block) % masks.workers)] = worker;
  }
  Masks result = masks;
  for (std::vector<int>& holders : result.holders) {
    for (int& worker : holders) worker = worker_at[static_cast<std::size_t>(worker)];
    std::sort(holders.begin(), holders.end());
  }
  return result;
}

}  // namespace

Masks make_stage_masks(const StageMaskOptions& options) {
  if (options.blocks == 0) return {options.workers, {}};
  MaskOptions part{.workers = options.workers,
                   .units = options.units_per_block * (options.each_block ? 1 : options.blocks),
                   .coverage = options.coverage,
                   .generator = options.generator,
                   .seed = options.seed};
  const auto draw = [&](int block) {
    part.seed = options.seed ^ Generator::mixed(static_cast<std::uint64_t>(block));
    return make_masks(part);
  };
  if (!options.each_block) return draw(options.first_block);

  Masks masks{options.workers, {}};
  for (int block = options.first_block; block < options.first_block + options.blocks; ++block) {
    Masks of_block = draw(block);
    if (options.generator == MaskGenerator::cyclic) of_block = turned(of_block, block);
    masks.holders.insert(masks.holders.end(), of_block.holders.begin(), of_block.holders.end());
  }
  return masks;
}

}  // namespace minipipe::schedules
