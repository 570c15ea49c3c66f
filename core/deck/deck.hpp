#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace minipipe::core {

// One run's settings. Member initializers are the defaults; schema.cpp says what each key means and which values it may have.
// A Deck made by read_deck has every value inside its range; rules between keys are checked by check_rules.
struct Deck {
  struct Run {
    std::string name = "run";
    std::int64_t seed = 1;
    std::int64_t steps = 40;
    std::string resume;
    double time_limit = 0.0;  // seconds
    double grace = 30.0;      // seconds
    double watchdog = 300.0;  // seconds
    friend bool operator==(const Run&, const Run&) = default;
  };

  struct Model {
    std::string family = "gpt2";
    int layers = 8;
    int width = 128;
    int heads = 4;
    int kv_heads = 0;
    int hidden = 0;
    int vocab = 256;
    int context = 128;
    bool tied = false;
    double dropout = 0.0;
    std::string pattern = {};  // lists of the first fields compile
    int experts = 8;
    int expert_choices = 2;
    int expert_hidden = 0;
    double expert_capacity = 0.0;
    double balance_loss = 0.01;
    int state_size = 64;
    int state_head_size = 32;
    int state_groups = 1;
    int state_expand = 2;
    int conv_width = 4;
    friend bool operator==(const Model&, const Model&) = default;
  };

  struct Data {
    std::string train = "data/sample/train.h5";
    std::string validation = "data/sample/validation.h5";
    friend bool operator==(const Data&, const Data&) = default;
  };

  struct Train {
    int sequence = 64;
    int microbatch_size = 2;
    std::int64_t microbatches = 8;
    double learning_rate = 1e-3;
    std::int64_t warmup_steps = 4;
    double min_learning_rate = 1e-4;
    double weight_decay = 0.1;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    std::string optimizer = "adamw";
    double muon_learning_rate = 0.02;
    double muon_momentum = 0.95;
    std::string clip = "none";
    double clip_norm = 1.0;
    std::string recompute = "none";
    friend bool operator==(const Train&, const Train&) = default;
  };

  struct Schedule {
    std::string name = "paci";
    std::string order = "fixed";
    std::string ready = "alternate";
    int extra_in_flight = 0;
    std::int64_t synchronous_updates = 0;
    int chunks = 1;
    double memory_limit = 0.0;
    std::int64_t annealing_steps = 0;
    std::string plan;
    std::vector<int> partition;
    std::string replay;
    friend bool operator==(const Schedule&, const Schedule&) = default;
  };

  struct Parallel {
    int data = 1;
    int stages = 0;
    std::string mode = "ddp";
    std::string transport = "mpi";
    std::string staging = "host";
    double bucket_mb = 4.0;  // MiB
    std::string fsdp_reduce = "microbatch";
    friend bool operator==(const Parallel&, const Parallel&) = default;
  };

  // Used under parallel.mode = "sdp" only.
  struct Sdp {
    std::string unit = "block";
    int neuron_groups = 8;
    double coverage = 1.0;
    std::string masking = "forward";
    std::string generator = "cyclic";
    std::int64_t seed = 1;
    std::string sync = "gradient";
    std::int64_t period = 1;   // updates
    std::int64_t refresh = 1;  // updates
    bool fsdp = false;
    friend bool operator==(const Sdp&, const Sdp&) = default;
  };

  struct Precision {
    std::string compute = "fp32";
    friend bool operator==(const Precision&, const Precision&) = default;
  };

  struct Checkpoint {
    std::int64_t interval = 20;
    int keep = 2;
    friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
  };

  struct Output {
    std::string directory = "runs/run";
    std::int64_t evaluation_interval = 0;
    std::int64_t evaluation_batches = 8;
    std::int64_t log_interval = 10;
    std::string progress = "auto";
    friend bool operator==(const Output&, const Output&) = default;
  };

  struct Emulate {
    bool enabled = false;
    double forward_ms = 4.0;
    double backward_ms = 8.0;
    std::vector<double> stage_factors;
    double link_latency_ms = 0.0;
    std::vector<double> link_latencies_ms;
    double link_mb_per_s = 0.0;
    std::int64_t message_bytes = 262144;
    double jitter = 0.0;
    friend bool operator==(const Emulate&, const Emulate&) = default;
  };

  Run run;
  Model model;
  Data data;
  Train train;
  Schedule schedule;
  Parallel parallel;
  Sdp sdp;
  Precision precision;
  Checkpoint checkpoint;
  Output output;
  Emulate emulate;

  // Where a value that is not a default came from: "block.key" -> "file:line" or "command line".
  std::map<std::string, std::string> origins;

  // The case of a sweep that these settings are, -1 for none, and the values that make it (block.key, TOML), in the sweep's
  // order. No settings: they do not count in comparisons.
  std::int64_t case_number = -1;
  std::vector<std::pair<std::string, std::string>> swept;

  // Equal settings; where they came from does not count.
  friend bool operator==(const Deck& a, const Deck& b) {
    return a.run == b.run && a.model == b.model && a.data == b.data && a.train == b.train && a.schedule == b.schedule &&
           a.parallel == b.parallel && a.sdp == b.sdp && a.precision == b.precision && a.checkpoint == b.checkpoint &&
           a.output == b.output && a.emulate == b.emulate;
  }
};

}  // namespace minipipe::core
