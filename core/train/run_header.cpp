#include "core/train/run_header.hpp"

#include <sstream>

#include "core/deck/rule_list.hpp"
#include "core/model/parameter_list.hpp"
#include "core/train/options.hpp"

namespace minipipe::core {

namespace {

std::string model_text(const Deck& deck) {
  double parameters = 0;
  for (const ParameterEntry& entry : parameter_list(model_config(deck))) parameters += static_cast<double>(entry.size);
  char text[64];
  std::snprintf(text, sizeof text, "%.4g million parameters", 1e-6 * parameters);
  return deck.model.family + ", " + text;
}

std::string partition_text(const Deck& deck, int stages) {
  std::ostringstream text;
  text << "layers [";
  const char* separator = "";
  for (const StageLayers& stage : stage_layers(deck, stages)) {
    text << separator << stage.blocks;
    separator = ",";
  }
  text << "]";
  return text.str();
}

}  // namespace

std::string run_header(const Deck& deck, const Place& place, std::int64_t fullest_bytes) {
  std::ostringstream text;
  text << deck.schedule.name << ": ";
  if (!deck.emulate.enabled) text << model_text(deck) << "; ";
  text << plural(place.ranks, "rank") << " = " << plural(place.replicas, "replica") << " x "
       << plural(place.pipeline_ranks(), "rank") << " with " << plural(place.stages(), "stage");
  if (!deck.emulate.enabled) text << ", " << partition_text(deck, place.stages());
  text << "; " << plural(tokens_per_update(deck), "token") << " an update; " << bytes_text(static_cast<double>(fullest_bytes))
       << " on the fullest rank; results in " << deck.output.directory << "\n";
  if (place.stages() == 1 && deck.schedule.name != "1f1b" && deck.schedule.name != "gpipe") {
    text << "note: one stage, so " << deck.schedule.name
         << " has nothing to overlap; start more ranks (mpirun -n N) or set parallel.stages\n";
  }
  if (deck.schedule.name == "interleaved" && deck.schedule.chunks == 1 && place.stages() == place.pipeline_ranks()) {
    text << "note: schedule.chunks = 1, so interleaved is 1f1b; set it to 2 or more\n";
  }
  return text.str();
}

}  // namespace minipipe::core
