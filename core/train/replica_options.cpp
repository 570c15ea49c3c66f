#include "core/train/replica_options.hpp"

#include <algorithm>
#include <cstdio>

#include "core/deck/shown_rows.hpp"
#include "core/deck/stage_mask_rules.hpp"
#include "core/train/options.hpp"

namespace minipipe::core {

namespace {

schedules::Masks masks_of_stage(const Deck& deck, const StageLayers& layers) {
  return schedules::make_stage_masks(stage_mask_options(deck, layers.first_block, layers.blocks));
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

}  // namespace

std::int64_t average_period(const Deck& deck) {
  return deck.parallel.mode == "sdp" && deck.sdp.sync == "parameter" ? deck.sdp.period : 0;
}

ReplicaOptions replica_options(const Deck& deck, const StageLayers& layers, int replica) {
  ReplicaOptions options;
  // A single replica holds everything and exchanges nothing, whatever the mode.
  if (deck.parallel.data == 1) return options;
  options.mode = deck.parallel.mode == "zero1"  ? ReplicaMode::zero1
                 : deck.parallel.mode == "fsdp" ? ReplicaMode::fsdp
                 : deck.parallel.mode == "sdp"  ? ReplicaMode::sdp
                                                : ReplicaMode::ddp;
  options.replicas = deck.parallel.data;
  options.replica = replica;
  // Beyond what one message can count, larger buckets mean nothing.
  const double floats = std::min(deck.parallel.bucket_mb * (1 << 20) / sizeof(float), 2147483647.0);
  options.bucket_floats = std::max<std::int64_t>(1, static_cast<std::int64_t>(floats));
  options.reduce_per_microbatch = deck.parallel.fsdp_reduce == "microbatch";
  if (!options.sdp()) return options;
  options.unit = deck.sdp.unit == "neuron" ? SdpUnit::neuron : deck.sdp.unit == "sublayer" ? SdpUnit::sublayer : SdpUnit::block;
  options.neuron_groups = deck.sdp.neuron_groups;
  options.backward_masking = deck.sdp.masking == "backward";
  options.sharded_units = deck.sdp.fsdp;
  options.average_period = average_period(deck);
  options.refresh_period = deck.sdp.refresh;
  options.masks = masks_of_stage(deck, layers);
  return options;
}

void check_masks_of_run(const Deck& deck, int stages) {
  if (deck.emulate.enabled) return;
  std::vector<int> blocks;
  for (const StageLayers& layers : stage_layers(deck, stages)) blocks.push_back(layers.blocks);
  check_masks(deck, blocks);
}

std::string masks_text(const Deck& deck, int stages, MaskRows wanted) {
  if (deck.parallel.mode != "sdp") return "";
  std::string text;
  const auto layers = stage_layers(deck, stages);
  for (int stage = 0; stage < stages; ++stage) {
    const schedules::Masks masks = masks_of_stage(deck, layers[stage]);
    if (masks.units() == 0) continue;
    text += "masks of stage " + std::to_string(stage);
    if (wanted == MaskRows::none) {
      text += ": " + std::to_string(masks.workers) + " replicas, " + std::to_string(masks.units()) + " units, ";
    } else {
      const auto count = static_cast<std::size_t>(masks.workers);
      const auto rows = shown_rows(count, wanted == MaskRows::all);
      text += " (rows: replicas, columns: units; last row: holders)\n" + schedules::to_text(masks, {rows.begin(), rows.end()}) +
              rows_left_out(count, rows.size(), "");
    }
    text += "spectral gap " + number(schedules::spectral_gap(masks)) + ", masking error " +
            number(schedules::masking_error(masks)) + "\n";
  }
  return text;
}

}  // namespace minipipe::core
