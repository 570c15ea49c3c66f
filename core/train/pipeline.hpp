#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/message_buffers.hpp"
#include "core/comm/mpi_error.hpp"
#include "core/comm/transport.hpp"
#include "core/deck/deck.hpp"
#include "core/emulate/emulated_stage.hpp"
#include "core/model/kokkos_stage.hpp"
#include "core/parallel/replica_exchange.hpp"
#include "core/train/place.hpp"
#include "core/train/sent_bytes.hpp"
#include "core/train/switch_stage.hpp"
#include "schedules/exec/executor.hpp"

namespace minipipe::core {

// Where batches come from. Not owned. Both may be null in an emulated run.
struct Sources {
  BatchSource* train = nullptr;
  BatchSource* validation = nullptr;
};

// One stage of this rank: its compute, the memory of its messages, its channels and its executor.
struct LocalStage {
  int index = 0;
  std::unique_ptr<MessageBuffers> activation_in, activation_out, gradient_in, gradient_out;
  std::unique_ptr<schedules::ReceiveChannel> activation_receive, gradient_receive;
  std::unique_ptr<schedules::SendChannel> activation_send, gradient_send;
  std::unique_ptr<KokkosStage> model;         // null in an emulated run
  std::unique_ptr<EmulatedStage> emulated;    // null in a real one
  std::unique_ptr<ReplicaExchange> exchange;  // with the other replicas of the stage; null without
  std::unique_ptr<SwitchStage> switchable;    // over `model`
  std::unique_ptr<schedules::Executor> executor;

  std::int64_t message_bytes() const;
};

// The stages of this rank, wired to each other and to the neighbours.
class Pipeline {
 public:
  // Allocates what the stages need. `edges`: a communicator of all ranks for messages between stages; `clock`: seconds since
  // the run's start. Both, and the sources, must outlive the pipeline. Not collective. Throws InputError (the deck does not
  // fit) or RunError.
  Pipeline(const Deck& deck, const Place& place, MPI_Comm edges, const Sources& sources, std::function<double()> clock);
  ~Pipeline();

  // Once, before anything else: connects the channels between ranks. Collective over `edges`; a rank whose pipeline could not
  // be made must not be waited for here.
  void join_stages() { transport_->join(); }

  // With several replicas, once, before anything else: allocates and joins the exchange among them. `replicas`: the ranks that
  // hold the same stages, by replica. Collective over it; a rank whose pipeline could not be made must not be waited for here.
  // `make_streams`: the links of one stage among `replicas`, borrowed; by default those of the deck's transport.
  using MakeStreams = std::function<ReplicaStreams(MPI_Comm replicas)>;
  void join_replicas(MPI_Comm replicas, const MakeStreams& make_streams = {});

  std::vector<LocalStage>& stages() { return stages_; }

  // Called between actions, with `true` if something moved since the last call. May return a lower end for the segment.
  using Poll = std::function<std::optional<std::int64_t>(bool moved)>;

  // Sets the counters of all stages.
  void start_at(std::int64_t microbatches, std::int64_t updates);

  // Gives every stage its policy (by stage) and works until all stages of this rank have drained before microbatch `end`.
  void run_segment(std::map<int, std::unique_ptr<schedules::Policy>> policies, std::int64_t end, const Poll& poll);

  // How many of a replica's microbatches an evaluation does next, 1 to `left`, after `done` of them; 0 cuts it short. Must
  // answer the same on all ranks of all replicas.
  using NextPart = std::function<std::int64_t(std::int64_t done, std::int64_t left)>;

  // Forward passes of `microbatches` microbatches of `source`, dealt out over the replicas, through the whole pipe, on an empty
  // pipe. Returns the losses of this replica's share on the rank of its last stage, nothing elsewhere. Counters are as before
  // afterwards; nothing is logged. All replicas must call it together. With `next_part`, in parts, between which the pipe is
  // empty; cut short where it says so.
  std::vector<MicrobatchLoss> evaluate(BatchSource& source, std::int64_t microbatches, const Poll& poll,
                                       const SwitchStage::TokenLosses& keep = {}, const NextPart& next_part = {});

  // Bytes this rank has sent while training; evaluations apart.
  SentBytes sent() const;

 private:
  SentBytes all_sent() const;
  void make_buffers(LocalStage& stage, const Deck& deck);
  void make_compute(LocalStage& stage, const Deck& deck, const Sources& sources);
  void make_exchange(LocalStage& stage, MPI_Comm replicas, const MakeStreams& make_streams);
  void connect();
  void connect_in_process(LocalStage& lower, LocalStage& upper);
  void delay_links(const Deck& deck);

  Place place_;
  std::string replica_transport_;
  std::function<double()> clock_;
  std::unique_ptr<Transport> transport_;
  std::int64_t sent_to_stages_ = 0;      // counted by the channels
  SentBytes sent_in_evaluation_;         // of all_sent()
  std::vector<Communicator> exchanges_;  // one per stage with replicas; outlives the stages
  std::vector<LocalStage> stages_;
};

}  // namespace minipipe::core
