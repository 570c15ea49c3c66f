#include "core/deck/stage_mask_rules.hpp"

#include <cstddef>
#include <set>
#include <string>

#include "schedules/error.hpp"

namespace minipipe::core {

schedules::StageMaskOptions stage_mask_options(const Deck& deck, int first_block, int blocks) {
  const Deck::Sdp& sdp = deck.sdp;
  schedules::StageMaskOptions options;
  options.workers = deck.parallel.data;
  options.first_block = first_block;
  options.blocks = blocks;
  options.each_block = sdp.unit == "neuron";
  options.units_per_block = options.each_block ? sdp.neuron_groups : (sdp.unit == "sublayer" ? 2 : 1);
  options.coverage = sdp.coverage;
  options.generator = sdp.generator == "random" ? schedules::MaskGenerator::random : schedules::MaskGenerator::cyclic;
  options.seed = static_cast<std::uint64_t>(sdp.seed);
  return options;
}

void add_mask_errors(Rules& rules, const Deck& deck, const std::vector<int>& blocks_of_stages) {
  std::set<int> checked;
  std::set<std::string> told;  // groups of neurons fail in every stage in the same way
  int first_block = 0;
  for (std::size_t stage = 0; stage < blocks_of_stages.size(); ++stage) {
    const int blocks = blocks_of_stages[stage];
    const int first = first_block;
    first_block += blocks;
    if (!checked.insert(blocks).second) continue;
    try {
      schedules::make_stage_masks(stage_mask_options(deck, first, blocks));
    } catch (const InputError& error) {
      if (!told.insert(error.what()).second) continue;
      rules.add("sdp", "coverage",
                error.what() + std::string(" [stage ") + str(static_cast<std::int64_t>(stage)) + ": " +
                    plural(blocks, "block") + ", sdp.unit = \"" + deck.sdp.unit + "\"]");
    }
  }
}

void check_masks(const Deck& deck, const std::vector<int>& blocks_of_stages) {
  if (deck.parallel.mode != "sdp") return;
  Rules rules(deck);
  add_mask_errors(rules, deck, blocks_of_stages);
  if (!rules.text().empty()) throw InputError(rules.text());
}

}  // namespace minipipe::core
