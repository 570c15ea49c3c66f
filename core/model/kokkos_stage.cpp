#include "core/model/kokkos_stage.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/kernels/elementwise.hpp"
#include "core/kernels/rotary.hpp"
#include "core/model/activation_arena.hpp"
#include "core/model/fence.hpp"
#include "core/model/loss_record.hpp"
#include "core/model/region.hpp"
#include "core/model/stage_layout.hpp"
#include "core/model/stage_tensors.hpp"
#include "core/optim/pipemare.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

void check_messages(const char* name, const Matrix<float>& memory, bool needed, std::int64_t floats) {
  if (needed && (memory.extent(0) == 0 || static_cast<std::int64_t>(memory.extent(1)) != floats)) {
    throw RunError(std::string("message memory ") + name + " has " + std::to_string(memory.extent(0)) + " slots of " +
                   std::to_string(memory.extent(1)) + " floats; slots of " + std::to_string(floats) + " are needed");
  }
}

KokkosStageOptions checked(const KokkosStageOptions& options) {
  validate(options.model, options.shape, options.stages);
  if (options.activation_slots < 1 || options.window < 1) {
    throw InputError("a stage needs at least one activation slot and one microbatch per update");
  }
  const std::int64_t floats = static_cast<std::int64_t>(options.shape.rows()) * options.model.width;
  check_messages("activation_in", options.messages.activation_in, !options.layers.embedding, floats);
  check_messages("gradient_out", options.messages.gradient_out, !options.layers.embedding, floats);
  check_messages("activation_out", options.messages.activation_out, !options.layers.head, floats);
  check_messages("gradient_in", options.messages.gradient_in, !options.layers.head, floats);
  return options;
}

}  // namespace

class KokkosStage::Implementation {
 public:
  Implementation(const KokkosStageOptions& given, BatchSource& batches)
      : options(checked(given)),
        source(batches),
        layout(options),
        store(space, options.model, options.layers, options.seed, options.optimizer),
        versions(space, options, store),
        gradients(store.gradients(), store.entries(), options.model, options.layers),
        muon_memory(store.optimizer().matrices),
        activations("minipipe::model::activations", options.activation_slots, layout.slot_floats),
        integers("minipipe::model::tokens", options.activation_slots, layout.slot_integers),
        host_integers(Kokkos::create_mirror_view(integers.memory())),
        workspaces("minipipe::model::workspace", layout.workspaces, layout.workspace_floats),
        scratch("minipipe::model::scratch", layout.scratch_floats),
        rotary("minipipe::model::rotary", layout.rotary),
        token_losses("minipipe::model::token_losses", layout.token_losses),
        losses(layout.loss_capacity),
        sum_workspace("minipipe::model::sum_workspace", layout.sum_workspace),
        squares("minipipe::model::gradient_squares", layout.squares),
        host_squares(Kokkos::create_mirror_view(squares)),
        context{.space = space, .model = options.model, .shape = options.shape, .seed = options.seed} {
    for (int b = 0; b < versions.buffers(); ++b) {
      weights.emplace_back(versions.buffer(b), store.entries(), options.model, options.layers);
    }
    if (layout.rotary > 0) {
      const auto table = slice_matrix<double>(rotary, 0, options.shape.sequence, head_size(options.model));
      rotary_table(space, table, rotary_base);
      context.rotary = table;
    }
  }

  int rows() const { return options.shape.rows(); }
  const StageLayers& layers() const { return options.layers; }
  Matrix<float> message(const Matrix<float>& memory, int slot) const {
    return Matrix<float>(memory.data() + static_cast<std::size_t>(slot) * memory.extent(1), rows(), options.model.width);
  }
  ConstMatrix<std::int32_t> tokens(int slot) const {
    return slice_matrix<std::int32_t>(integers.slot(slot), layout.tokens, options.shape.microbatch_size,
                                      options.shape.sequence);
  }
  ConstVector<std::int32_t> targets(int slot) const { return slice<std::int32_t>(integers.slot(slot), layout.targets, rows()); }
  Vector<float> workspace(int slot) const { return workspaces.slot(options.split_backward ? slot : 0); }
  BlockMemory<float> memory(int slot) const { return {activations.slot(slot), workspace(slot), scratch, rows()}; }
  Matrix<float> running_gradient(int slot) const {
    return slice_matrix<float>(workspace(slot), layout.gradient, rows(), options.model.width);
  }

  void begin(std::int64_t microbatch, bool training) {
    context.microbatch = microbatch;
    context.training = training;
  }

  // Where the output of the layer before block `block` goes (block = number of blocks: the layer before the head).
  Matrix<float> input_of(int block, int slot, int output) const {
    const int width = options.model.width;
    if (block < layers().blocks) return memory(slot).matrix(layout.blocks[block].attention.input, width);
    if (layers().head) return memory(slot).matrix(layout.head.input, width);
    return message(options.messages.activation_out, output);
  }

  void load_batch(BatchSource& from, std::int64_t microbatch, int slot) {
    if (layout.slot_integers == 0) return;
    std::int32_t* host = host_integers.data() + static_cast<std::size_t>(slot) * layout.slot_integers;
    from.batch(microbatch, layers().embedding ? host + layout.tokens : nullptr,
               layers().head ? host + layout.targets : nullptr);
    if constexpr (!on_host) {
      using Host = Kokkos::View<const std::int32_t*, Kokkos::LayoutRight, HostSpace, Unmanaged>;
      Kokkos::deep_copy(space, integers.slot(slot), Host(host, layout.slot_integers));
    }
  }

  void run_forward(BatchSource& from, int slot, int input, int output, const StageTensors<float>& with) {
    load_batch(from, context.microbatch, slot);
    if (layers().embedding) {
      embedding_layer_forward<float>(context, with.embedding, tokens(slot), input_of(0, slot, output));
    } else {
      copy<float>(space, flatten(input_of(0, slot, output)), flatten(message(options.messages.activation_in, input)));
    }
    for (int b = 0; b < layers().blocks; ++b) {
      block_forward<float>(context, layers().first_block + b, with.blocks[b], layout.blocks[b], memory(slot),
                           input_of(b + 1, slot, output));
    }
    if (layers().head) {
      head_forward<float>(context, with.head, layout.head, memory(slot), targets(slot), token_losses);
    }
  }

  // `whole`: each layer's weight half follows its input half at once, so that the layers can share one workspace.
  void run_backward_input(int slot, int gradient_input, int gradient_output, bool whole, const StageTensors<float>& with) {
    const Matrix<float> gradient =
        layers().embedding ? running_gradient(slot) : message(options.messages.gradient_out, gradient_output);
    if (layers().head) {
      const float scale = static_cast<float>(1.0 / (static_cast<double>(rows()) * static_cast<double>(options.window)));
      head_backward_input<float>(context, with.head, layout.head, layout.head_gradient, memory(slot), targets(slot), scale,
                                 gradient, token_losses);
      if (whole) head_weight(slot);
    } else {
      copy<float>(space, flatten(gradient), flatten(message(options.messages.gradient_in, gradient_input)));
    }
    for (int b = layers().blocks - 1; b >= 0; --b) {
      block_backward_input<float>(context, layers().first_block + b, with.blocks[b], layout.blocks[b],
                                  layout.block_gradients[b], memory(slot), gradient);
      if (whole) block_weight(b, slot);
    }
    if (whole && layers().embedding) embedding_weight(slot);
  }

  void head_weight(int slot) {
    head_backward_weight<float>(context, gradients.head, layout.head, layout.head_gradient, memory(slot));
  }
  void block_weight(int b, int slot) {
    block_backward_weight<float>(context, gradients.blocks[b], layout.blocks[b], layout.block_gradients[b], memory(slot));
  }
  void embedding_weight(int slot) {
    embedding_layer_backward_weight<float>(context, gradients.embedding, tokens(slot), running_gradient(slot));
  }

  std::vector<double> gradient_squares() {
    for (std::size_t e = 0; e < store.entries().size(); ++e) {
      const ParameterEntry& entry = store.entries()[e];
      sum_of_squares<float>(space, slice<double>(squares, e, 1), slice<float>(store.gradients(), entry.offset, entry.size),
                            sum_workspace, false);
    }
    if constexpr (!on_host) Kokkos::deep_copy(space, host_squares, squares);
    fence_instance(space, "before sums of squares are read on the host, because they were enqueued");
    return {host_squares.data(), host_squares.data() + host_squares.size()};
  }

  // The factor that brings the norm down to options.clip_norm.
  double clip_factor(const std::vector<double>& mine) const {
    if (options.clip == Clip::none) return 1.0;
    double total = 0;
    if (options.clip == Clip::stage) {
      for (const double square : mine) total += square;
    } else {
      if (!combine_squares) throw RunError("clipping by the global norm needs set_global_squares() before the first update");
      total = combine_squares(mine);
    }
    return std::min(1.0, options.clip_norm / (std::sqrt(total) + 1e-6));
  }

  void optimizer_step(double rate, std::int64_t step, double factor) {
    const OptimizerLayout& by = store.optimizer();
    const auto update = options.optimizer == OptimizerKind::nadam ? nadam_update<float> : adamw_update<float>;
    update(space, store.parameters(), store.first_moment(), store.second_moment(), store.gradients(), by.ranges, options.adamw,
           rate, step, factor);
    const double peak = options.learning_rate.peak;
    const double muon_rate = peak > 0 ? rate * options.muon.learning_rate / peak : 0.0;
    muon_update<float>(space, store.parameters(), store.first_moment(), store.gradients(), by.matrices, options.muon,
                       options.adamw.weight_decay, muon_rate, factor, muon_memory.workspace());
  }

  const KokkosStageOptions options;
  BatchSource& source;
  ExecutionSpace space;
  const StageLayout layout;
  ParameterStore store;
  WeightVersions versions;
  std::vector<StageTensors<float>> weights;  // by number of the array in `versions`
  const StageTensors<float> gradients;
  const MuonMemory<float> muon_memory;
  ActivationArena activations;
  SlotArena<std::int32_t> integers;
  OwnedVector<std::int32_t>::HostMirror host_integers;
  ActivationArena workspaces;
  OwnedVector<float> scratch;
  OwnedVector<double> rotary;
  OwnedVector<float> token_losses;
  LossRecord losses;
  OwnedVector<double> sum_workspace, squares;
  OwnedVector<double>::HostMirror host_squares;
  LayerContext context;
  std::vector<MicrobatchLoss> evaluation_losses;
  std::vector<GradientSquares> squares_taken;
  std::function<double(const std::vector<double>&)> combine_squares;
};

KokkosStage::KokkosStage(const KokkosStageOptions& options, BatchSource& source)
    : implementation_(std::make_unique<Implementation>(options, source)) {}

KokkosStage::~KokkosStage() = default;

void KokkosStage::forward(std::int64_t microbatch, int slot, int input, int output) {
  const Region region("minipipe::stage::forward");
  Implementation& m = *implementation_;
  m.begin(microbatch, true);
  m.run_forward(m.source, slot, input, output, m.weights[m.versions.for_forward(microbatch, slot)]);
  if (m.layers().head) m.losses.add(m.space, microbatch, m.token_losses, m.sum_workspace);
}

void KokkosStage::backward(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) {
  if (implementation_->options.split_backward) {
    Stage::backward(microbatch, slot, gradient_input, gradient_output);
    return;
  }
  const Region region("minipipe::stage::backward");
  Implementation& m = *implementation_;
  m.begin(microbatch, true);
  m.run_backward_input(slot, gradient_input, gradient_output, true, m.weights[m.versions.for_backward(microbatch, slot)]);
}

void KokkosStage::backward_input(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) {
  if (!implementation_->options.split_backward) throw RunError("this stage was made for whole backwards");
  const Region region("minipipe::stage::backward_input");
  Implementation& m = *implementation_;
  m.begin(microbatch, true);
  m.run_backward_input(slot, gradient_input, gradient_output, false, m.weights[m.versions.for_backward(microbatch, slot)]);
}

void KokkosStage::backward_weight(std::int64_t microbatch, int slot) {
  if (!implementation_->options.split_backward) throw RunError("this stage was made for whole backwards");
  const Region region("minipipe::stage::backward_weight");
  Implementation& m = *implementation_;
  m.begin(microbatch, true);
  if (m.layers().head) m.head_weight(slot);
  for (int b = m.layers().blocks - 1; b >= 0; --b) m.block_weight(b, slot);
  if (m.layers().embedding) m.embedding_weight(slot);
}

void KokkosStage::update(std::int64_t update) {
  const Region region("minipipe::stage::update");
  Implementation& m = *implementation_;
  GradientSquares record{update, m.gradient_squares()};
  const double factor = m.clip_factor(record.squares);
  m.squares_taken.push_back(std::move(record));
  m.versions.before_update();
  m.optimizer_step(learning_rate_at(update), update + 1, factor);
  m.versions.after_update(update);
  fill<float>(m.space, m.store.gradients(), 0.0f);
}

void KokkosStage::complete_output() {
  fence_instance(implementation_->space, "before a message is sent, because the transport reads its memory");
}

void KokkosStage::evaluate(std::int64_t microbatch, BatchSource& source, int input, int output,
                           std::vector<float>* token_losses) {
  const Region region("minipipe::stage::evaluate");
  Implementation& m = *implementation_;
  m.begin(microbatch, false);
  m.run_forward(source, 0, input, output, m.weights[0]);
  if (!m.layers().head) return;
  m.evaluation_losses.emplace_back(microbatch, m.losses.mean(m.space, m.token_losses, m.sum_workspace));
  if (token_losses != nullptr) {
    token_losses->resize(m.token_losses.size());
    using Host = Kokkos::View<float*, Kokkos::LayoutRight, HostSpace, Unmanaged>;
    Kokkos::deep_copy(m.space, Host(token_losses->data(), token_losses->size()), m.token_losses);
    fence_instance(m.space, "before losses are read on the host, because their copy was enqueued");
  }
}

std::vector<MicrobatchLoss> KokkosStage::take_losses() { return implementation_->losses.take(implementation_->space); }

std::vector<MicrobatchLoss> KokkosStage::take_evaluation_losses() {
  return std::exchange(implementation_->evaluation_losses, {});
}

std::vector<GradientSquares> KokkosStage::take_gradient_squares() { return std::exchange(implementation_->squares_taken, {}); }

void KokkosStage::set_global_squares(std::function<double(const std::vector<double>& squares)> combine) {
  implementation_->combine_squares = std::move(combine);
}

ParameterStore& KokkosStage::parameters() { return implementation_->store; }
const ParameterStore& KokkosStage::parameters() const { return implementation_->store; }
WeightVersions& KokkosStage::versions() { return implementation_->versions; }
const WeightVersions& KokkosStage::versions() const { return implementation_->versions; }
const KokkosStageOptions& KokkosStage::options() const { return implementation_->options; }

double KokkosStage::learning_rate_at(std::int64_t update) const {
  const KokkosStageOptions& options = implementation_->options;
  double rate = learning_rate(update, options.learning_rate);
  if (options.weight_rule == WeightRule::corrected && update >= options.synchronous_updates) {
    rate /=
        pipemare_rate_divisor(update - options.synchronous_updates, options.pipemare.annealing_steps, pipemare_delay(options));
  }
  return rate;
}

StageBytes KokkosStage::bytes() const {
  const Implementation& m = *implementation_;
  StageBytes bytes;
  bytes.parameters = m.store.parameters().size() * sizeof(float);
  bytes.gradients = m.store.gradients().size() * sizeof(float);
  bytes.optimizer = (m.store.first_moment().size() + m.store.second_moment().size()) * sizeof(float) + m.muon_memory.bytes();
  bytes.weight_versions = m.versions.bytes();
  bytes.activations = m.activations.bytes() + m.integers.bytes() + m.workspaces.bytes() +
                      (m.scratch.size() + m.token_losses.size()) * sizeof(float) + m.losses.bytes() +
                      (m.squares.size() + m.sum_workspace.size() + m.rotary.size()) * sizeof(double);
  return bytes;
}

}  // namespace minipipe::core
