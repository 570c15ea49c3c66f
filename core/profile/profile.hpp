#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/deck/deck.hpp"
#include "core/profile/layer_times.hpp"

namespace minipipe::core {

// What one rank measured. Seconds are trimmed means over many actions, with all ranks working at the same time, each on another
// stage.
struct RankProfile {
  LayerTimes forward;
  LayerTimes backward;        // whole, in a stage that does not split
  LayerTimes backward_input;  // the halves, in a stage that splits
  LayerTimes backward_weight;
  LayerTimes update;          // sums of squares, optimizer step, zeroed gradients
  double weight_copy = 0;     // seconds per parameter to keep an older version at an update
  double weight_correct = 0;  // seconds per parameter of PipeMare's correction at an update
  double message_copy = 0;    // a message between two stages of this rank
  double residual = 0;        // largest relative difference between a timed stage and the sum of its layers
};

// A message between neighbouring ranks; 0 if there was one rank only.
struct LinkProfile {
  double send = 0;     // the sender's seconds to start a send
  double receive = 0;  // the receiver's seconds to take a message that waits for it
  double one_way = 0;  // from the start of a send to the message in the hands of a receiver that was waiting for it
  double latency = 0;  // the same for a message of 64 bytes
  double bytes_per_s = 0;

  // What neither end computes: the transfer itself.
  double transfer() const { return one_way > send + receive ? one_way - send - receive : 0; }
};

// What must be the same in the deck that uses a profile: the deck key and its value as text. The number of layers and the
// pattern, the schedule, the partition, the number of microbatches and the number of stages may differ. Of a hybrid's mixtures
// of experts and state spaces there is something only where the pattern has such layers.
using ModelFingerprint = std::map<std::string, std::string>;
ModelFingerprint model_fingerprint(const Deck& deck);

// Where the numbers hold.
struct Machine {
  std::string hosts;  // names of all hosts, sorted, separated by commas
  std::string cpu;    // model name of the processor
  std::string execution_space;
  std::int64_t threads = 1;  // per rank
};

// What one layer holds.
struct LayerBytes {
  std::int64_t parameters = 0;   // numbers
  std::int64_t activations = 0;  // bytes kept per microbatch from its forward to its backward; 0: not known
  friend bool operator==(const LayerBytes&, const LayerBytes&) = default;
};

struct Profile {
  ModelFingerprint model;
  Machine machine;
  std::string deck;  // resolved, as TOML
  std::string version;
  std::string git_hash;
  std::int64_t message_bytes = 0;
  std::string undetermined;  // layers whose times the timed stages do not tell apart: "forward: embedding + head; ..."
  LayerBytes embedding, head;
  std::array<LayerBytes, layer_kinds> layers;  // one layer of each LayerKind; a kind without parameters was not measured
  std::vector<RankProfile> ranks;
  LinkProfile link;  // mean over all links, all busy at the same time

  RankProfile mean() const;
  LayerBytes& of(LayerKind kind) { return layers[static_cast<std::size_t>(kind)]; }
  const LayerBytes& of(LayerKind kind) const { return layers[static_cast<std::size_t>(kind)]; }
  bool has(LayerKind kind) const { return of(kind).parameters > 0; }
  std::vector<LayerKind> kinds() const;  // that were measured
  // Of a stage.
  std::int64_t parameters(const LayerCounts& counts) const;
};

// Throws InputError naming the profile and each key that differs if the deck's model is another one, or has layers of a kind
// that was not measured.
void check_model(const std::string& file, const Profile& profile, const Deck& deck);

// One line naming the profile and what differs, or nothing. Host and processor count; "" in `here` is not looked at.
std::string machine_difference(const std::string& file, const Profile& profile, const Machine& here);

}  // namespace minipipe::core
