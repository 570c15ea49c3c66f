#include "core/train/pipeline.hpp"

#include <algorithm>

#include "core/comm/agreement.hpp"
#include "core/comm/delayed_channel.hpp"
#include "core/comm/mpi_channel.hpp"
#include "core/deck/emulated_times.hpp"
#include "core/train/link_delay.hpp"
#include "core/train/options.hpp"
#include "schedules/error.hpp"
#include "schedules/exec/inprocess_channel.hpp"

namespace minipipe::core {

namespace {

// The ends of an in-process edge belong to the channel object; these hand them out as owned objects.
class SharedSend : public schedules::SendChannel {
 public:
  explicit SharedSend(std::shared_ptr<schedules::InProcessChannel> channel) : channel_(std::move(channel)) {}
  int slots() const override { return channel_->sender().slots(); }
  void send(int slot) override { channel_->sender().send(slot); }
  bool sent(int slot) override { return channel_->sender().sent(slot); }

 private:
  std::shared_ptr<schedules::InProcessChannel> channel_;
};

class SharedReceive : public schedules::ReceiveChannel {
 public:
  explicit SharedReceive(std::shared_ptr<schedules::InProcessChannel> channel) : channel_(std::move(channel)) {}
  int slots() const override { return channel_->receiver().slots(); }
  void post(int slot) override { channel_->receiver().post(slot); }
  bool arrived(int slot) override { return channel_->receiver().arrived(slot); }

 private:
  std::shared_ptr<schedules::InProcessChannel> channel_;
};

// An emulated link around real ends: the sender stamps each message, the receiver holds it back.
class EmulatedSend : public schedules::SendChannel {
 public:
  EmulatedSend(std::unique_ptr<schedules::SendChannel> inner, const MessageBuffers& buffers)
      : inner_(std::move(inner)), stamped_(*inner_, steady_seconds, stamp_writer(buffers)) {}
  int slots() const override { return stamped_.slots(); }
  void send(int slot) override { stamped_.send(slot); }
  bool sent(int slot) override { return stamped_.sent(slot); }

 private:
  std::unique_ptr<schedules::SendChannel> inner_;
  StampedSendChannel stamped_;
};

class EmulatedReceive : public schedules::ReceiveChannel {
 public:
  EmulatedReceive(std::unique_ptr<schedules::ReceiveChannel> inner, const MessageBuffers& buffers, double latency_s)
      : inner_(std::move(inner)), delayed_(*inner_, latency_s, steady_seconds, stamp_reader(buffers)) {}
  int slots() const override { return delayed_.slots(); }
  void post(int slot) override { delayed_.post(slot); }
  bool arrived(int slot) override { return delayed_.arrived(slot); }

 private:
  std::unique_ptr<schedules::ReceiveChannel> inner_;
  DelayedChannel delayed_;
};

std::shared_ptr<schedules::InProcessChannel> in_process_edge(const MessageBuffers& from, const MessageBuffers& to) {
  const auto source = from.device();
  const auto target = to.device();
  auto copy = [source, target](int from_slot, int to_slot) {
    Kokkos::deep_copy(ExecutionSpace(), Kokkos::subview(target, to_slot, Kokkos::ALL),
                      Kokkos::subview(source, from_slot, Kokkos::ALL));
    fence(ExecutionSpace(), "before the slots are given back, because the copy may be asynchronous");
  };
  return std::make_shared<schedules::InProcessChannel>(from.slots(), to.slots(), copy);
}

Matrix<float> memory_of(const std::unique_ptr<MessageBuffers>& buffers) {
  if (!buffers) return {};
  const auto& view = buffers->device();
  return Matrix<float>(view.data(), view.extent(0), view.extent(1));
}

}  // namespace

std::int64_t LocalStage::message_bytes() const {
  std::int64_t sum = 0;
  for (const auto* buffers : {&activation_in, &activation_out, &gradient_in, &gradient_out}) {
    if (*buffers) sum += (*buffers)->bytes();
  }
  return sum;
}

Pipeline::Pipeline(const Deck& deck, const Place& place, MPI_Comm edges, const Sources& sources, std::function<double()> clock)
    : place_(place),
      replica_transport_(deck.parallel.transport),
      clock_(std::move(clock)),
      transport_(make_transport(deck.parallel.transport, edges)) {
  for (const int index : place_.local_stages()) {
    LocalStage stage;
    stage.index = index;
    make_buffers(stage, deck);
    make_compute(stage, deck, sources);
    stages_.push_back(std::move(stage));
  }
  connect();
  if (deck.emulate.enabled) delay_links(deck);
  const auto options = schedule_options(deck, place_.stages());
  for (LocalStage& stage : stages_) {
    schedules::Stage& compute = stage.switchable ? static_cast<schedules::Stage&>(*stage.switchable) : *stage.emulated;
    stage.executor = std::make_unique<schedules::Executor>(
        stage.index, place_.stages(), schedules::activation_slots(options, stage.index), compute,
        schedules::StageChannels{stage.activation_receive.get(), stage.activation_send.get(), stage.gradient_receive.get(),
                                 stage.gradient_send.get()},
        clock_);
  }
}

Pipeline::~Pipeline() = default;

void Pipeline::join_replicas(MPI_Comm replicas, const MakeStreams& make_streams) {
  if (place_.replicas == 1) return;
  const MakeStreams of_deck = [this](MPI_Comm comm) { return make_replica_streams(replica_transport_, comm); };
  for (LocalStage& stage : stages_) {
    if (stage.model) make_exchange(stage, replicas, make_streams ? make_streams : of_deck);
  }
}

void Pipeline::make_buffers(LocalStage& stage, const Deck& deck) {
  const std::int64_t floats = message_floats(deck);
  const bool on_device = deck.parallel.transport == "nccl" || deck.parallel.staging == "device";
  const auto with = [&](int neighbour) {
    return on_device || place_.has(neighbour) ? MessageBuffers::Staging::never : MessageBuffers::Staging::when_needed;
  };
  if (stage.index > 0) {
    const int slots = edge_slots(deck, place_.stages(), stage.index - 1);
    const auto staging = with(stage.index - 1);
    stage.activation_in = std::make_unique<MessageBuffers>("activation_in", slots, floats, staging);
    stage.gradient_out = std::make_unique<MessageBuffers>("gradient_out", slots, floats, staging);
  }
  if (stage.index + 1 < place_.stages()) {
    const int slots = edge_slots(deck, place_.stages(), stage.index);
    const auto staging = with(stage.index + 1);
    stage.activation_out = std::make_unique<MessageBuffers>("activation_out", slots, floats, staging);
    stage.gradient_in = std::make_unique<MessageBuffers>("gradient_in", slots, floats, staging);
  }
}

void Pipeline::make_compute(LocalStage& stage, const Deck& deck, const Sources& sources) {
  if (deck.emulate.enabled) {
    EmulatedStageOptions options;
    const EmulatedTimes times = emulated_times(deck, stage.index);
    options.forward_ms = times.forward;
    options.input_ms = times.input;
    options.weight_ms = times.weight;
    options.update_ms = times.update;
    options.jitter = deck.emulate.jitter;
    options.seed = static_cast<std::uint64_t>(deck.run.seed);
    options.stage = stage.index;
    options.last = stage.index + 1 == place_.stages();
    stage.emulated = std::make_unique<EmulatedStage>(options);
    return;
  }
  KokkosStageOptions options = stage_options(deck, stage_layers(deck, place_.stages()), stage.index, place_.replica());
  options.messages = {memory_of(stage.activation_in), memory_of(stage.activation_out), memory_of(stage.gradient_in),
                      memory_of(stage.gradient_out)};
  stage.model = std::make_unique<KokkosStage>(options, *sources.train);
  stage.switchable = std::make_unique<SwitchStage>(*stage.model);
}

void Pipeline::make_exchange(LocalStage& stage, MPI_Comm replicas, const MakeStreams& make_streams) {
  exchanges_.push_back(Communicator::duplicate(replicas));
  KokkosStage& model = *stage.model;
  const ParameterStore& store = model.parameters();
  ExchangeArrays arrays;
  arrays.parameters = store.parameters();
  arrays.gradients = store.gradients();
  for (int parity = 0; parity < 2; ++parity) {
    arrays.layer_weights[parity] = store.layer_weight_buffers()[parity];
    arrays.layer_gradients[parity] = store.layer_gradient_buffers()[parity];
  }
  arrays.owner = store.share_arrays();
  const auto scale = [&model](const std::vector<int>& holders, std::int64_t update) {
    return model.gradient_scale(holders, update);
  };
  MPI_Comm comm = exchanges_.back().get();
  // A replica that cannot make its part must not be waited for.
  agree(comm, [&] {
    ReplicaStreams streams = make_streams(comm);
    const ExchangeLayout layout(model.replica_layout(), streams.memory());
    stage.exchange = std::make_unique<ReplicaExchange>(layout, arrays, comm, model.space(), scale, 0, std::move(streams));
  });
  stage.exchange->check_layouts(comm);
  agree(comm, [&] { stage.exchange->join(); });
  model.attach(*stage.exchange);
}

void Pipeline::connect() {
  for (LocalStage& stage : stages_) {
    const int previous = stage.index - 1;
    const int next = stage.index + 1;
    if (previous >= 0 && !place_.has(previous)) {
      const int peer = place_.rank_of(previous);
      stage.activation_receive = transport_->receiver({peer, edge_tag(previous, Direction::activation)}, *stage.activation_in);
      stage.gradient_send =
          transport_->sender({peer, edge_tag(previous, Direction::gradient)}, *stage.gradient_out, sent_to_stages_);
    }
    if (next >= place_.stages()) continue;
    if (place_.has(next)) {
      connect_in_process(stage, *std::find_if(stages_.begin(), stages_.end(), [&](const auto& s) { return s.index == next; }));
      continue;
    }
    const int peer = place_.rank_of(next);
    stage.activation_send =
        transport_->sender({peer, edge_tag(stage.index, Direction::activation)}, *stage.activation_out, sent_to_stages_);
    stage.gradient_receive = transport_->receiver({peer, edge_tag(stage.index, Direction::gradient)}, *stage.gradient_in);
  }
}

void Pipeline::connect_in_process(LocalStage& lower, LocalStage& upper) {
  auto activations = in_process_edge(*lower.activation_out, *upper.activation_in);
  lower.activation_send = std::make_unique<SharedSend>(activations);
  upper.activation_receive = std::make_unique<SharedReceive>(activations);
  auto gradients = in_process_edge(*upper.gradient_out, *lower.gradient_in);
  upper.gradient_send = std::make_unique<SharedSend>(gradients);
  lower.gradient_receive = std::make_unique<SharedReceive>(gradients);
}

void Pipeline::delay_links(const Deck& deck) {
  for (LocalStage& stage : stages_) {
    const double before_s = stage.index > 0 && !place_.has(stage.index - 1) ? link_delay_s(deck, stage.index - 1) : 0;
    const double after_s =
        stage.index + 1 < place_.stages() && !place_.has(stage.index + 1) ? link_delay_s(deck, stage.index) : 0;
    if (before_s > 0) {
      stage.activation_receive =
          std::make_unique<EmulatedReceive>(std::move(stage.activation_receive), *stage.activation_in, before_s);
      stage.gradient_send = std::make_unique<EmulatedSend>(std::move(stage.gradient_send), *stage.gradient_out);
    }
    if (after_s > 0) {
      stage.activation_send = std::make_unique<EmulatedSend>(std::move(stage.activation_send), *stage.activation_out);
      stage.gradient_receive =
          std::make_unique<EmulatedReceive>(std::move(stage.gradient_receive), *stage.gradient_in, after_s);
    }
  }
}

void Pipeline::start_at(std::int64_t microbatches, std::int64_t updates) {
  for (LocalStage& stage : stages_) {
    stage.executor->start_at(microbatches, updates);
    if (stage.exchange) stage.exchange->start_at(updates);
  }
}

void Pipeline::run_segment(std::map<int, std::unique_ptr<schedules::Policy>> policies, std::int64_t end, const Poll& poll) {
  for (LocalStage& stage : stages_) {
    stage.executor->set_policy(std::move(policies.at(stage.index)));
    stage.executor->begin_segment(end);
  }
  for (bool finished = false; !finished;) {
    bool moved = false;
    finished = true;
    for (LocalStage& stage : stages_) {
      const std::int64_t actions = stage.executor->state().actions();
      moved |= stage.executor->advance();
      finished &= stage.executor->finished();
      if (stage.executor->state().actions() == actions) continue;
      for (LocalStage& other : stages_) other.executor->wait_anew();
    }
    if (const auto lower = poll(moved); lower && !finished) {
      for (LocalStage& stage : stages_) {
        if (!stage.executor->finished()) stage.executor->lower_segment_end(*lower);
      }
    }
  }
}

std::vector<MicrobatchLoss> Pipeline::evaluate(BatchSource& source, std::int64_t microbatches, const Poll& poll,
                                               const SwitchStage::TokenLosses& keep, const NextPart& next_part) {
  const auto state = stages_.front().executor->state();
  const SentBytes before = all_sent();
  for (LocalStage& stage : stages_) {
    stage.switchable->evaluate(source, keep);
    stage.executor->start_at(0, 0);
  }
  // Where they cannot be dealt out evenly, some replicas do one more for nothing: layers are exchanged by all together.
  const std::int64_t share = (microbatches + place_.replicas - 1) / place_.replicas;
  for (std::int64_t done = 0; done < share;) {
    const std::int64_t part = next_part ? next_part(done, share - done) : share;
    if (part == 0) break;
    done += part;
    std::map<int, std::unique_ptr<schedules::Policy>> policies;
    for (const LocalStage& stage : stages_) policies[stage.index] = schedules::make_forward_only_policy();
    run_segment(std::move(policies), done, poll);
  }
  std::vector<MicrobatchLoss> losses;
  for (LocalStage& stage : stages_) {
    stage.switchable->train();
    stage.executor->start_at(state.forwards, state.updates);
    stage.executor->take_log();
    if (stage.exchange) stage.exchange->forget_fetched();  // what training fetches is told as training's
    for (const MicrobatchLoss& loss : stage.model->take_evaluation_losses()) {
      if (loss.microbatch < microbatches) losses.push_back(loss);
    }
  }
  sent_in_evaluation_ += all_sent();
  sent_in_evaluation_ -= before;
  return losses;
}

SentBytes Pipeline::all_sent() const {
  SentBytes sent;
  sent.pipeline = sent_to_stages_;
  for (const LocalStage& stage : stages_) {
    if (stage.exchange) sent.replicas += stage.exchange->traffic();
  }
  return sent;
}

SentBytes Pipeline::sent() const {
  SentBytes sent = all_sent();
  sent -= sent_in_evaluation_;
  return sent;
}

}  // namespace minipipe::core
