#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules/plan/placement.hpp"
#include "schedules/tune/profile.hpp"

namespace minipipe::core {

// A stated result of a profile: what an independent source says a plan takes.
struct ProfileCase {
  std::string name;
  std::vector<int> partition;
  schedules::Placement placement;
  std::string schedule;  // "1f1b": whole backwards; "list scheduler": the rules of schedules::ListRules
  std::optional<double> makespan_ticks;
  std::vector<double> compute_ticks;  // by device; empty: not stated
};

// What a profile says of costs at another size, and of links (scaled_profile.hpp).
struct ProfileGrowth {
  double width = 0;                     // at which the times were measured; 0: not said
  double sequence = 0;                  // tokens of a microbatch's one sequence
  std::vector<double> attention_share;  // by layer: share of its time that grows with the sequence's square
  double latency_ms = 0;                // of a message between stages
  double transfer_ms = 0;               // its bytes over the link's bandwidth
  double exchange_gb_per_s = 0;         // of the links between replicas, in 10^9 bytes; 0: the exchange is free
  double exchange_latency_ms = 0;       // of a message between replicas
};

struct ProfileFile {
  schedules::CostProfile profile;  // milliseconds
  int devices = 0;                 // 0: not said
  int microbatches = 0;
  std::string machine;  // where the times were measured; empty: nowhere in particular
  std::vector<ProfileCase> cases;
  ProfileGrowth growth;
};

// JSON: "layers" (one symbol per layer), "forward_ms", "backward_ms" (input gradient), "weight_ms" (each a table from symbol to
// milliseconds; E is the embedding, L the head), and optionally "activation_units", "activation_bytes", "parameter_bytes"
// (tables), "communication_ms", "devices", "microbatches", "machine", "name", "cases"; for other sizes and for replicas
// "width", "sequence", "attention_share", "gradient_bytes" (tables), "message_bytes" and "link_gb_per_s" (which make the link
// longer), "exchange_gb_per_s", "exchange_latency_ms". Every symbol of one table of times must be in the other two. Throws
// InputError naming file and path of the value ("forward_ms.M") for what is missing, negative, of another kind or unknown; for
// a layer without costs, its position.
ProfileFile parse_profile(const std::string& text, const std::string& file);

// parse_profile of a file. InputError if it cannot be read.
ProfileFile read_json_profile(const std::string& file);

}  // namespace minipipe::core
