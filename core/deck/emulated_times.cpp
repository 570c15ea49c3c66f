#include "core/deck/emulated_times.hpp"

namespace minipipe::core {

std::array<StageTimeList, 4> stage_time_lists(const Deck& deck) {
  const Deck::Emulate& emulate = deck.emulate;
  return {{{"stage_forward_ms", emulate.stage_forward_ms},
           {"stage_input_ms", emulate.stage_input_ms},
           {"stage_weight_ms", emulate.stage_weight_ms},
           {"stage_update_ms", emulate.stage_update_ms}}};
}

EmulatedTimes emulated_times(const Deck& deck, int stage) {
  const Deck::Emulate& emulate = deck.emulate;
  const auto at = [stage](const std::vector<double>& list, double otherwise) {
    return list.empty() ? otherwise : list.at(static_cast<std::size_t>(stage));
  };
  const double factor = at(emulate.stage_factors, 1);
  return {.forward = at(emulate.stage_forward_ms, factor * emulate.forward_ms),
          .input = at(emulate.stage_input_ms, factor * (0.5 * emulate.backward_ms)),
          .weight = at(emulate.stage_weight_ms, factor * (0.5 * emulate.backward_ms)),
          .update = at(emulate.stage_update_ms, 0)};
}

}  // namespace minipipe::core
