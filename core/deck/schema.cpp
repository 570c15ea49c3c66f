#include "core/deck/schema.hpp"

#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

namespace minipipe::core {
namespace {

enum class Restart { keep, may_change };

Limits any() { return {}; }

Limits at_least(double low) {
  Limits limits;
  limits.low = low;
  return limits;
}

Limits above(double low) {
  Limits limits = at_least(low);
  limits.low_excluded = true;
  return limits;
}

// low <= value <= high
Limits between(double low, double high) {
  Limits limits = at_least(low);
  limits.high = high;
  return limits;
}

// low < value <= high
Limits above_up_to(double low, double high) {
  Limits limits = above(low);
  limits.high = high;
  return limits;
}

// low <= value < high
Limits below(double low, double high) {
  Limits limits = at_least(low);
  limits.high = high;
  limits.high_excluded = true;
  return limits;
}

Limits one_of(std::vector<std::string> words) {
  Limits limits;
  limits.choices = std::move(words);
  return limits;
}

// So that no product of them is too large for 64 bits: microbatches of a run, its tokens, bytes of all slots.
constexpr double most_updates = 1e9;
constexpr double most_microbatches = 1e6;
constexpr double most_layers = 1e5;
constexpr double most_message_bytes = 1 << 30;

// The type a member has in a Value.
template <class Member>
struct Stored {
  using type = Member;
};
template <>
struct Stored<int> {
  using type = std::int64_t;
};
template <>
struct Stored<std::vector<int>> {
  using type = std::vector<std::int64_t>;
};

template <class To, class From>
To converted(const From& from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (std::is_arithmetic_v<To>) {
    return static_cast<To>(from);
  } else {
    return To(from.begin(), from.end());
  }
}

class Table {
 public:
  template <class Block>
  class Rows {
   public:
    Rows(Table& table, std::string name, Block Deck::*block) : table_(table), name_(std::move(name)), block_(block) {}

    template <class Member>
    Rows& row(std::string key, Member Block::*member, Limits limits, Restart restart, std::string doc) {
      using Alternative = typename Stored<Member>::type;
      if constexpr (std::is_same_v<Member, int> || std::is_same_v<Member, std::vector<int>>) {
        limits.high = std::fmin(limits.high, std::numeric_limits<int>::max());
      }
      const auto block = block_;
      Entry entry;
      entry.block = name_;
      entry.key = std::move(key);
      entry.type = static_cast<Type>(Value(Alternative()).index());
      entry.limits = std::move(limits);
      entry.may_change_at_restart = restart == Restart::may_change;
      entry.doc = std::move(doc);
      entry.get = [block, member](const Deck& deck) { return Value(converted<Alternative>(deck.*block.*member)); };
      entry.set = [block, member](Deck& deck, const Value& value) {
        deck.*block.*member = converted<Member>(std::get<Alternative>(value));
      };
      table_.entries.push_back(std::move(entry));
      return *this;
    }

   private:
    Table& table_;
    std::string name_;
    Block Deck::*block_;
  };

  template <class Block>
  Rows<Block> block(std::string name, Block Deck::*member, std::string doc) {
    blocks.push_back({name, std::move(doc)});
    return Rows<Block>(*this, std::move(name), member);
  }

  std::vector<Entry> entries;
  std::vector<BlockDoc> blocks;
};

// THE table: key, member, allowed values, what a restart may do with it, one line of text. Types and defaults are the members'.
Table make_table() {
  using D = Deck;
  constexpr Restart keep = Restart::keep;
  constexpr Restart change = Restart::may_change;
  // clang-format off
  Table t;
  t.block("run", &D::run, "the run as a whole")
      .row("name", &D::Run::name, any(), change, "name of the run, in its outputs")
      .row("seed", &D::Run::seed, at_least(0), keep, "seed of initial weights, data order and dropout")
      .row("steps", &D::Run::steps, between(1, most_updates), change, "optimizer updates; at a restart it may only grow")
      .row("resume", &D::Run::resume, any(), change, "checkpoint to go on from: \"latest\" or a file; \"\" = start anew")
      .row("time_limit", &D::Run::time_limit, at_least(0), change, "seconds after which the run stops with a checkpoint; 0 = none")
      .row("grace", &D::Run::grace, at_least(0), change, "seconds a stop request may wait for the next drain that the deck fixes")
      .row("watchdog", &D::Run::watchdog, at_least(0), change, "seconds without progress on a rank before the job ends with status 3; 0 = off");
  t.block("model", &D::model, "the transformer")
      .row("family", &D::Model::family, one_of({"gpt2", "llama", "hybrid"}), keep, "model family; hybrid: LLaMA's parts, one kind of layer for each letter of pattern")
      .row("layers", &D::Model::layers, between(1, most_layers), keep, "transformer blocks; hybrid: the letters of pattern")
      .row("width", &D::Model::width, at_least(1), keep, "size of the residual stream")
      .row("heads", &D::Model::heads, at_least(1), keep, "attention heads; width / heads is the head size")
      .row("kv_heads", &D::Model::kv_heads, at_least(0), keep, "heads of keys and values, each shared by heads / kv_heads heads (llama, hybrid); 0 = heads")
      .row("hidden", &D::Model::hidden, at_least(0), keep, "features inside the MLP; 0 = 4 width (gpt2), 8/3 width in whole 256s (llama, hybrid)")
      .row("vocab", &D::Model::vocab, at_least(2), keep, "number of tokens")
      .row("context", &D::Model::context, at_least(1), keep, "longest sequence; rows of the position embedding (gpt2)")
      .row("tied", &D::Model::tied, any(), keep, "one matrix for token embedding and head (one stage only)")
      .row("dropout", &D::Model::dropout, below(0, 1), keep, "probability that an activation is dropped")
      .row("pattern", &D::Model::pattern, any(), keep, "hybrid: a letter for each layer: * attention, - MLP, # mixture of experts, M state space (Mamba-2)")
      .row("experts", &D::Model::experts, at_least(1), keep, "layers #: experts of a mixture")
      .row("expert_choices", &D::Model::expert_choices, at_least(1), keep, "layers #: experts that each token passes")
      .row("expert_hidden", &D::Model::expert_hidden, at_least(0), keep, "layers #: features inside an expert; 0 = those of an MLP / expert_choices in whole 16s")
      .row("expert_capacity", &D::Model::expert_capacity, at_least(0), keep, "layers #: an expert takes at most this factor of an even share of tokens, the rest passes by; 0 = all")
      .row("balance_loss", &D::Model::balance_loss, between(0, 1000), keep, "layers #: coefficient of the load-balancing loss; the reported loss is without it")
      .row("state_size", &D::Model::state_size, at_least(1), keep, "layers M: numbers of state for each feature")
      .row("state_head_size", &D::Model::state_head_size, at_least(1), keep, "layers M: features of a head; there are state_expand * width / state_head_size heads")
      .row("state_groups", &D::Model::state_groups, at_least(1), keep, "layers M: groups of heads that share input and output maps of the state")
      .row("state_expand", &D::Model::state_expand, at_least(1), keep, "layers M: features inside the layer over width")
      .row("conv_width", &D::Model::conv_width, between(1, 8), keep, "layers M: positions that the short convolution sees");
  t.block("data", &D::data, "token files")
      .row("train", &D::Data::train, any(), change, "training tokens: HDF5, nanoGPT or llm.c file")
      .row("validation", &D::Data::validation, any(), change, "validation tokens");
  t.block("train", &D::train, "batches and the optimizer")
      .row("sequence", &D::Train::sequence, at_least(1), keep, "tokens per sequence")
      .row("microbatch_size", &D::Train::microbatch_size, at_least(1), keep, "sequences per microbatch")
      .row("microbatches", &D::Train::microbatches, between(1, most_microbatches), change, "microbatches per update of a replica: m of flush schedules, a of PACI; at a restart times parallel.data as before")
      .row("learning_rate", &D::Train::learning_rate, at_least(0), keep, "peak learning rate")
      .row("warmup_steps", &D::Train::warmup_steps, between(0, most_updates), keep, "updates of linear warm-up; a cosine follows")
      .row("min_learning_rate", &D::Train::min_learning_rate, at_least(0), keep, "learning rate at the last update")
      .row("weight_decay", &D::Train::weight_decay, at_least(0), keep, "decoupled weight decay of matrices")
      .row("beta1", &D::Train::beta1, below(0, 1), keep, "decay of the first moment")
      .row("beta2", &D::Train::beta2, below(0, 1), keep, "decay of the second moment")
      .row("epsilon", &D::Train::epsilon, above(0), keep, "added to the root of the second moment")
      .row("optimizer", &D::Train::optimizer, one_of({"adamw", "nadam", "muon"}), keep, "optimizer")
      .row("muon_learning_rate", &D::Train::muon_learning_rate, at_least(0), keep, "muon: peak learning rate of the hidden matrices, same shape as learning_rate")
      .row("muon_momentum", &D::Train::muon_momentum, below(0, 1), keep, "muon: momentum of the hidden matrices")
      .row("clip", &D::Train::clip, one_of({"none", "global", "stage"}), keep, "gradient-norm clipping over the whole model (flush schedules only) or in each stage")
      .row("clip_norm", &D::Train::clip_norm, above(0), keep, "largest gradient norm that clipping leaves alone")
      .row("recompute", &D::Train::recompute, one_of({"none", "attention", "block"}), change, "activations computed again in the backward, with its weights: none, attention's, or all but each block's input");
  t.block("schedule", &D::schedule, "the pipeline schedule")
      .row("name", &D::Schedule::name, one_of({"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "zb-auto", "paci", "async-1f1b", "pipedream", "pipedream-2bw", "pipemare", "plan"}), keep, "schedule")
      .row("order", &D::Schedule::order, one_of({"dynamic", "fixed"}), keep, "paci, pipemare: dynamic reacts to arrivals; fixed does not, so the loss is reproducible")
      .row("ready", &D::Schedule::ready, one_of({"alternate", "backward_first"}), keep, "paci, pipemare, dynamic: which goes first when a forward and a backward are ready")
      .row("extra_in_flight", &D::Schedule::extra_in_flight, between(0, most_microbatches), keep, "paci: further forwards admitted on all stages but the last")
      .row("synchronous_updates", &D::Schedule::synchronous_updates, between(0, most_updates), keep, "asynchronous schedules: the first K updates run as 1f1b")
      .row("chunks", &D::Schedule::chunks, at_least(1), change, "interleaved: stages per rank")
      .row("memory_limit", &D::Schedule::memory_limit, at_least(0), keep, "zb-auto: activations a rank may hold, in microbatches of one stage; 0 = as many as stages")
      .row("annealing_steps", &D::Schedule::annealing_steps, between(0, most_updates), keep, "pipemare: updates over which the learning rate of early stages rises to its full value; 0 = full at once")
      .row("plan", &D::Schedule::plan, any(), keep, "plan: CSV file of the order to run, one row per rank")
      .row("partition", &D::Schedule::partition, at_least(0), change, "layers of each stage, 0 for a first or last stage without blocks; [] = balanced")
      .row("replay", &D::Schedule::replay, any(), keep, "action log to replay; \"\" = none");
  t.block("parallel", &D::parallel, "the process grid")
      .row("data", &D::Parallel::data, at_least(1), change, "data-parallel replicas; ranks = data * stages")
      .row("stages", &D::Parallel::stages, at_least(0), change, "pipeline stages; 0 = ranks / data; with one rank per replica: that many in one process")
      .row("mode", &D::Parallel::mode, one_of({"ddp", "zero1", "fsdp", "sdp"}), change, "what replicas share: ddp all of it, averaging gradients; zero1 with moments sharded; fsdp with weights and gradients sharded too; sdp parts of the model ([sdp])")
      .row("transport", &D::Parallel::transport, one_of({"mpi", "nccl"}), change, "what carries messages between stages on different ranks and among replicas; nccl: from GPU to GPU, each rank with a GPU of its own")
      .row("staging", &D::Parallel::staging, one_of({"host", "device"}), change, "transport = mpi on GPUs: messages pass through pinned host memory, or MPI is handed device memory, which it must support")
      .row("bucket_mb", &D::Parallel::bucket_mb, above(0), change, "MiB of gradients that are exchanged together; a larger tensor goes alone")
      .row("fsdp_reduce", &D::Parallel::fsdp_reduce, one_of({"microbatch", "window"}), change, "when sharded gradients are reduced: after every microbatch, or once per update, keeping whole gradients until then");
  t.block("sdp", &D::sdp, "subnetwork data parallelism: which replica holds what (parallel.mode = \"sdp\")")
      .row("unit", &D::Sdp::unit, one_of({"block", "sublayer", "neuron"}), change, "what a replica holds or leaves out as a whole: a block; its attention or its MLP; a group of the MLP's hidden neurons")
      .row("neuron_groups", &D::Sdp::neuron_groups, at_least(1), change, "neuron: groups of hidden neurons per block")
      .row("coverage", &D::Sdp::coverage, above_up_to(0, 1), change, "share of a stage's units (neuron: of each block's) that a replica holds")
      .row("masking", &D::Sdp::masking, one_of({"forward", "backward"}), change, "forward: what is not held is absent; backward: whole forward, but gradients, moments and updates of held units only")
      .row("generator", &D::Sdp::generator, one_of({"cyclic", "random"}), change, "how units are dealt out: consecutive ones round the circle, or balanced at random")
      .row("seed", &D::Sdp::seed, at_least(0), change, "random: seed of the masks")
      .row("sync", &D::Sdp::sync, one_of({"gradient", "parameter"}), change, "what a unit's holders average: gradients at every update, or parameters from time to time")
      .row("period", &D::Sdp::period, between(1, most_updates), change, "sync = parameter: updates between averages")
      .row("refresh", &D::Sdp::refresh, between(1, most_updates), change, "masking = backward: updates between refreshes of what a replica does not hold")
      .row("fsdp", &D::Sdp::fsdp, any(), change, "a unit's weights, gradients and moments are sharded over its holders");
  t.block("precision", &D::precision, "number formats")
      .row("compute", &D::Precision::compute, one_of({"fp32", "bf16"}), keep, "format of matrix products and messages");
  t.block("checkpoint", &D::checkpoint, "checkpoints")
      .row("interval", &D::Checkpoint::interval, between(0, most_updates), change, "updates between checkpoints; 0 = only at the end")
      .row("keep", &D::Checkpoint::keep, at_least(1), change, "newest checkpoints that are kept");
  t.block("output", &D::output, "what is written")
      .row("directory", &D::Output::directory, any(), change, "folder of all outputs")
      .row("evaluation_interval", &D::Output::evaluation_interval, between(0, most_updates), change, "updates between validations; 0 = never")
      .row("evaluation_batches", &D::Output::evaluation_batches, between(1, most_updates), change, "microbatches per validation; as many as the file holds at most")
      .row("log_interval", &D::Output::log_interval, between(1, most_updates), change, "updates between lines of text")
      .row("progress", &D::Output::progress, one_of({"auto", "bar", "lines", "none"}), change, "progress display; auto = bar on a terminal, else lines");
  t.block("emulate", &D::emulate, "slept compute with real messages, to time schedules on few cores")
      .row("enabled", &D::Emulate::enabled, any(), change, "sleep instead of computing")
      .row("forward_ms", &D::Emulate::forward_ms, at_least(0), change, "milliseconds of a forward")
      .row("backward_ms", &D::Emulate::backward_ms, at_least(0), change, "milliseconds of a whole backward; halved where a schedule splits it")
      .row("stage_factors", &D::Emulate::stage_factors, above(0), change, "factor on the times of each stage; [] = 1 for all")
      .row("stage_forward_ms", &D::Emulate::stage_forward_ms, at_least(0), change, "milliseconds of each stage's forward; [] = forward_ms with the factors")
      .row("stage_input_ms", &D::Emulate::stage_input_ms, at_least(0), change, "the same of its input gradient; [] = half of backward_ms with the factors")
      .row("stage_weight_ms", &D::Emulate::stage_weight_ms, at_least(0), change, "the same of its weight gradient; a whole backward takes both")
      .row("stage_update_ms", &D::Emulate::stage_update_ms, at_least(0), change, "milliseconds of each stage's update; [] = 0")
      .row("link_latency_ms", &D::Emulate::link_latency_ms, at_least(0), change, "milliseconds added to each message")
      .row("link_latencies_ms", &D::Emulate::link_latencies_ms, at_least(0), change, "the same for each link between neighbouring stages; [] = link_latency_ms everywhere")
      .row("link_mb_per_s", &D::Emulate::link_mb_per_s, at_least(0), change, "bandwidth of a link in 10^6 bytes per second; 0 = no limit")
      .row("message_bytes", &D::Emulate::message_bytes, between(1, most_message_bytes), change, "bytes of a message between stages")
      .row("jitter", &D::Emulate::jitter, below(0, 1), change, "relative spread of the slept times");
  // clang-format on
  return t;
}

const Table& table() {
  static const Table the_table = make_table();
  return the_table;
}

std::string number(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

// Whole numbers without an exponent, as people write them.
std::string bound(double value) {
  return std::abs(value) < 1e15 && value == std::floor(value) ? std::to_string(static_cast<std::int64_t>(value))
                                                              : number(value);
}

std::string toml_float(double value) {
  std::string text = number(value);
  if (std::isfinite(value) && text.find('.') == std::string::npos) {
    text.insert(text.find('e') == std::string::npos ? text.size() : text.find('e'), ".0");
  }
  return text;
}

std::string toml_string(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      constexpr char digits[] = "0123456789abcdef";
      text += "\\u00";
      text += digits[(c >> 4) & 0xf];
      text += digits[c & 0xf];
    } else {
      text += c;
    }
  }
  return text + '"';
}

// Prints the alternatives of a Value.
struct Printer {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return toml_float(v); }
  std::string operator()(const std::string& v) const { return toml_string(v); }
  std::string operator()(const std::vector<std::int64_t>& v) const { return list(v); }
  std::string operator()(const std::vector<double>& v) const { return list(v); }
  template <class T>
  std::string list(const std::vector<T>& v) const {
    std::string text;
    for (const T& element : v) text += (text.empty() ? "" : ", ") + (*this)(element);
    return "[" + text + "]";
  }
};

}  // namespace

std::string_view type_name(Type type) {
  switch (type) {
    case Type::boolean:
      return "true or false";
    case Type::integer:
      return "an integer";
    case Type::real:
      return "a float";
    case Type::text:
      return "a string";
    case Type::integers:
      return "a list of integers";
    case Type::reals:
      return "a list of floats";
  }
  return "";
}

bool Limits::contains(double value) const {
  return (low_excluded ? value > low : value >= low) && (high_excluded ? value < high : value <= high);
}

std::string Limits::text() const {
  if (!choices.empty()) {
    std::string words = choices.front();
    for (std::size_t i = 1; i < choices.size(); ++i) words += " | " + choices[i];
    return words;
  }
  const bool bounded_below = std::isfinite(low);
  const bool bounded_above = std::isfinite(high) && high < std::numeric_limits<int>::max();
  if (bounded_below && bounded_above) {
    return bound(low) + (low_excluded ? " < " : " <= ") + "value" + (high_excluded ? " < " : " <= ") + bound(high);
  }
  if (bounded_below) return (low_excluded ? "> " : ">= ") + bound(low);
  if (bounded_above) return (high_excluded ? "< " : "<= ") + bound(high);
  return "";
}

const std::vector<Entry>& schema() { return table().entries; }

const std::vector<BlockDoc>& schema_blocks() { return table().blocks; }

const Entry* find_entry(std::string_view block, std::string_view key) {
  for (const Entry& entry : schema()) {
    if (entry.block == block && entry.key == key) return &entry;
  }
  return nullptr;
}

std::string to_toml(const Value& value) { return std::visit(Printer{}, value); }

}  // namespace minipipe::core
