#include "core/model/kokkos_stage.hpp"

#include <string>
#include <utility>

#include "core/kernels/rotary.hpp"
#include "core/model/added_gradients.hpp"
#include "core/model/stage_passes.hpp"
#include "core/optim/pipemare.hpp"
#include "core/types/region.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

void check_messages(const char* name, const Matrix<float>& memory, bool needed, std::int64_t floats) {
  if (needed && (memory.extent(0) == 0 || static_cast<std::int64_t>(memory.extent(1)) < floats)) {
    throw RunError(std::string("message memory ") + name + " has " + std::to_string(memory.extent(0)) + " slots of " +
                   std::to_string(memory.extent(1)) + " floats; slots of " + std::to_string(floats) + " are needed");
  }
}

KokkosStageOptions checked(const KokkosStageOptions& options) {
  validate(options.model, options.shape, options.stages);
  if (options.activation_slots < 1 || options.window < 1) {
    throw InputError("a stage needs at least one activation slot and one microbatch per update");
  }
  const ReplicaOptions& replication = options.replication;
  if (replication.replica < 0 || replication.replica >= replication.replicas) {
    throw RunError("replica " + std::to_string(replication.replica) + " of " + std::to_string(replication.replicas));
  }
  const bool weights_travel = replication.mode == ReplicaMode::zero1 || (replication.sdp() && replication.backward_masking);
  if ((replication.sharded() && options.weight_rule != WeightRule::current) ||
      (weights_travel && options.weight_rule == WeightRule::corrected)) {
    throw InputError(
        "schedule.name asks for weights beside the newest, but parallel.mode or [sdp] leaves a replica without all of them "
        "after "
        "an update; choose a schedule that uses the newest weights only, or parallel.mode = \"ddp\"");
  }
  const std::int64_t floats = message_floats(options.model, options.shape, options.precision);
  check_messages("activation_in", options.messages.activation_in, !options.layers.embedding, floats);
  check_messages("gradient_out", options.messages.gradient_out, !options.layers.embedding, floats);
  check_messages("activation_out", options.messages.activation_out, !options.layers.head, floats);
  check_messages("gradient_in", options.messages.gradient_in, !options.layers.head, floats);
  return options;
}

}  // namespace

KokkosStage::Implementation::Implementation(const KokkosStageOptions& given, BatchSource& batches)
    : options(checked(given)),
      source(batches),
      layout(options),
      store(space, options.model, options.layers, options.seed, options.optimizer,
            ReplicaLayout(options.model, options.layers, options.replication)),
      versions(space, options, store),
      gradients(by_layer(options.layers, [&](int layer) { return store.layer_gradients(layer); }), store.trained(),
                options.model, options.layers, trained_branches(layout.shares)),
      muon_memory(store.optimizer().matrices),
      activations("minipipe::model::activations", options.activation_slots, layout.slot_floats),
      integers("minipipe::model::tokens", options.activation_slots, layout.slot_integers),
      host_integers(Kokkos::create_mirror_view(HostSpace(), integers.memory())),
      workspaces("minipipe::model::workspace", layout.workspaces, layout.workspace_floats),
      scratch("minipipe::model::scratch", layout.scratch_floats),
      evaluation_memory("minipipe::model::evaluation", layout.evaluation_memory),
      rotary("minipipe::model::rotary", layout.rotary),
      token_losses("minipipe::model::token_losses", layout.token_losses),
      losses(layout.loss_capacity),
      sum_workspace("minipipe::model::sum_workspace", layout.sum_workspace),
      squares("minipipe::model::gradient_squares", layout.squares),
      host_squares(Kokkos::create_mirror_view(HostSpace(), squares)),
      context{.space = space,
              .model = options.model,
              .shape = options.shape,
              .seed = options.seed,
              // As the loss of a microbatch, of which the update's is the mean.
              .balance_scale = options.model.balance_loss / static_cast<double>(options.window)} {
  for (const SquarePart& part : store.owned_squares()) {
    const Piece& piece = part.piece;
    square_tensors.push_back(part.global_index);
    square_pieces.push_back({part.array.data() + piece.offset, piece.rows, piece.columns, piece.stride});
  }
  if (sharded()) {
    added_gradients_ = {store.gradients()};
  } else {
    added_gradients_ = added_gradients(store.gradients(), gradients);
  }
  fresh_gradients_.assign(static_cast<std::size_t>(StageLayerNumbers::count(options.layers)), !sharded());
  if (layout.rotary > 0) {
    const auto table = slice_matrix<double>(rotary, 0, options.shape.sequence, head_size(options.model));
    rotary_table(space, table, rotary_base);
    context.rotary = table;
  }
}

KokkosStage::KokkosStage(const KokkosStageOptions& options, BatchSource& source) {
  if (options.precision == Precision::bf16) {
    implementation_ = std::make_unique<Passes<bf16>>(options, source);
  } else {
    implementation_ = std::make_unique<Passes<float>>(options, source);
  }
}

KokkosStage::~KokkosStage() = default;

void KokkosStage::attach(LayerExchange& exchange) { implementation_->exchange = &exchange; }

void KokkosStage::forward(std::int64_t microbatch, int slot, int input, int output) {
  const Region region("minipipe::stage::forward");
  Implementation& m = *implementation_;
  m.begin(microbatch, true);
  m.run_forward(m.source, slot, input, output, m.versions.for_forward(microbatch, slot));
  if (m.layers().head) m.losses.add(m.space, m.context.microbatch, m.counted, m.token_losses, m.sum_workspace);
}

void KokkosStage::backward(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) {
  if (implementation_->options.split_backward) {
    Stage::backward(microbatch, slot, gradient_input, gradient_output);
    return;
  }
  const Region region("minipipe::stage::backward");
  Implementation& m = *implementation_;
  m.begin(microbatch, true);
  m.run_backward_input(slot, gradient_input, gradient_output, true, m.versions.for_backward(microbatch, slot));
}

void KokkosStage::backward_input(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) {
  if (!implementation_->options.split_backward) throw RunError("this stage was made for whole backwards");
  const Region region("minipipe::stage::backward_input");
  Implementation& m = *implementation_;
  m.begin(microbatch, true);
  m.run_backward_input(slot, gradient_input, gradient_output, false, m.versions.for_backward(microbatch, slot));
}

void KokkosStage::backward_weight(std::int64_t microbatch, int slot) {
  if (!implementation_->options.split_backward) throw RunError("this stage was made for whole backwards");
  const Region region("minipipe::stage::backward_weight");
  Implementation& m = *implementation_;
  m.begin(microbatch, true);
  m.run_backward_weight(slot);
}

void KokkosStage::update(std::int64_t update) {
  const Region region("minipipe::stage::update");
  implementation_->update(update, learning_rate_at(update));
}

bool KokkosStage::gradients_ready(std::int64_t update) {
  LayerExchange* exchange = implementation_->exchange;
  return exchange == nullptr || exchange->gradients_ready(update);
}

bool KokkosStage::weights_ready() {
  LayerExchange* exchange = implementation_->exchange;
  return exchange == nullptr || exchange->weights_ready();
}

void KokkosStage::complete_output() {
  fence(implementation_->space, "before a message is sent or the clock is read, because kernels may still run");
}

void KokkosStage::evaluate(std::int64_t microbatch, BatchSource& source, int input, int output,
                           std::vector<float>* token_losses) {
  const Region region("minipipe::stage::evaluate");
  Implementation& m = *implementation_;
  const MicrobatchLoss loss = m.evaluate(microbatch, source, input, output);
  if (!m.layers().head) return;
  m.evaluation_losses.push_back(loss);
  if (token_losses != nullptr) {
    token_losses->resize(m.token_losses.size());
    using Host = Kokkos::View<float*, Kokkos::LayoutRight, HostSpace, Unmanaged>;
    Kokkos::deep_copy(m.space, Host(token_losses->data(), token_losses->size()), m.token_losses);
    fence(m.space, "before losses are read on the host, because their copy was enqueued");
  }
}

std::vector<MicrobatchLoss> KokkosStage::take_losses() { return implementation_->losses.take(implementation_->space); }

std::vector<MicrobatchLoss> KokkosStage::take_evaluation_losses() {
  return std::exchange(implementation_->evaluation_losses, {});
}

std::vector<GradientSquares> KokkosStage::take_gradient_squares() { return std::exchange(implementation_->squares_taken, {}); }

double KokkosStage::gradient_scale(const std::vector<int>& replicas, std::int64_t update) const {
  return implementation_->gradient_scale(replicas, update);
}

void KokkosStage::set_global_squares(std::function<double(const std::vector<TensorSquares>& squares)> combine) {
  implementation_->combine_squares = std::move(combine);
}

ParameterStore& KokkosStage::parameters() { return implementation_->store; }
const ParameterStore& KokkosStage::parameters() const { return implementation_->store; }
WeightVersions& KokkosStage::versions() { return implementation_->versions; }
const WeightVersions& KokkosStage::versions() const { return implementation_->versions; }
const KokkosStageOptions& KokkosStage::options() const { return implementation_->options; }
const ReplicaLayout& KokkosStage::replica_layout() const { return implementation_->store.layout(); }
const ExecutionSpace& KokkosStage::space() const { return implementation_->space; }

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
  const ParameterBytes stored = m.store.bytes();
  bytes.parameters = stored.parameters;
  bytes.gradients = stored.gradients;
  bytes.optimizer = stored.optimizer + m.muon_memory.bytes();
  bytes.weight_versions = m.versions.bytes() + m.copies_bytes();
  bytes.activations = m.activations.bytes() + m.integers.bytes() + m.workspaces.bytes() +
                      (m.scratch.size() + m.evaluation_memory.size() + m.token_losses.size()) * sizeof(float) +
                      m.losses.bytes() + (m.squares.size() + m.sum_workspace.size() + m.rotary.size()) * sizeof(double);
  return bytes;
}

}  // namespace minipipe::core
