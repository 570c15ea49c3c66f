#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/model/layer_exchange.hpp"
#include "core/parallel/bucket_gather.hpp"
#include "core/parallel/bucket_reduce.hpp"
#include "core/parallel/exchange_layout.hpp"
#include "core/parallel/exchange_seconds.hpp"
#include "core/parallel/gathered_layers.hpp"
#include "core/parallel/replica_link.hpp"
#include "core/parallel/transfer.hpp"

namespace minipipe::core {

// The arrays of a stage that its replicas exchange, as ReplicaLayout describes them.
struct ExchangeArrays {
  Vector<float> parameters;
  Vector<float> gradients;
  // Sharded: layer l is gathered in buffer l % 2, and its gradients are formed in buffer l % 2.
  std::array<Vector<float>, 2> layer_weights;
  std::array<Vector<float>, 2> layer_gradients;
  // Kept for good if MPI may still touch the arrays when the exchange is destroyed (a peer has failed). May be null; then the
  // arrays must stay allocated by other means.
  std::shared_ptr<const void> owner;
};

// The exchange among the replicas of a stage, over point-to-point messages by MPI, or on streams of its own (see StreamLink).
// What it leaves where:
//   ddp, sdp:       the gradients' array holds the scaled sums over the holders.
//   zero1:          so does the own shard of every bucket (its pieces); the rest of the array keeps this replica's gradients.
//                   weights_changed sends the own shards' new weights to all.
//   fsdp, sharded:  per microbatch, the scaled sums are added to the shards in the gradients' array (which the stage clears);
//                   per window, as zero1.
//   average_period: gradients are only scaled, with this replica as the only holder.
//   backward masking, sharded units: fetch brings the newest weights to those that do not hold them, too.
// With equal layouts results are the same bits in all modes (per microbatch: with one microbatch).
// Nothing blocks but fetch, assemble, gradient_begins and sum_over_replicas; those move all other messages on, too. A failed
// message is a RunError; the exchange is then of no more use. All replicas must destroy it (or one is taken to have failed).
class ReplicaExchange : public LayerExchange {
 public:
  // The factor of the sum of a bucket's gradients. Called when the sum is begun.
  using Scale = std::function<double(const std::vector<int>& holders, std::int64_t update)>;

  // Collective over the replicas. Borrows the arrays and the communicator, whose ranks are the replicas; it returns errors (see
  // Communicator). Uses its tags [tag_base, tag_base + tags(layout)). Throws InputError if the options cannot be (see
  // ExchangePlans), RunError if the communicator does not fit or the replicas' layouts do not fit each other. With streams the
  // layout must say so, and only sum_over_replicas uses MPI.
  ReplicaExchange(const ExchangeLayout& layout, const ExchangeArrays& arrays, MPI_Comm comm, const ExecutionSpace& space,
                  Scale scale, int tag_base = 0, ReplicaStreams streams = {});

  // Once, before the first message; collective over the replicas, none of which must be missing. RunError if streams cannot
  // be joined.
  void join() {
    sums_.join();
    gathers_.join();
  }

  static std::int64_t tags(const ExchangeLayout& layout);

  // Collective over the same communicator: RunError on all if replicas have other ideas of who holds what.
  void check_layouts(MPI_Comm comm) const;

  // The next update's number; 0 at first. To be called after weights were set from outside, too.
  void start_at(std::int64_t update) {
    update_ = update;
    forget_fetched();
  }
  // The next fetch of each layer gathers it anew.
  void forget_fetched() { gathered_.forget(); }

  // A layer that its buffer still holds is not gathered again.
  void fetch(int layer, int next) override;
  void assemble(int layer, const Vector<float>& target) override;
  void gradient_begins(int layer) override;
  void gradient_done(int layer, bool last) override;
  bool gradients_ready(std::int64_t update) override;
  void weights_changed(std::int64_t update) override;
  bool weights_ready() override;
  std::vector<double> sum_over_replicas(const std::vector<double>& mine) override;
  void progress() override;
  std::size_t bytes() const override { return sums_.bytes() + gathers_.bytes(); }

  const Traffic& traffic() const { return link_.traffic(); }
  // Of the sums of gradients; exposed: after the last backward, and in gradient_begins.
  const ExchangeSeconds& gradient_seconds() const { return gradient_seconds_; }

 private:
  using Reduces = std::vector<std::unique_ptr<BucketReduce>>;
  using Gathers = std::vector<std::unique_ptr<BucketGather>>;

  ReplicaExchange(const ExchangeLayout& layout, const ExchangePlans& plans, const ExchangeArrays& arrays, MPI_Comm comm,
                  const ExecutionSpace& space, Scale scale, int tag_base, ReplicaStreams streams);

  void begin_sum(std::size_t bucket);
  bool sum_pending(std::size_t bucket) const;
  void begin_fetch(int layer, int replaced);
  bool layer_complete(int layer) const;
  bool refreshes(std::int64_t update) const;

  ReplicaOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<std::int64_t> layer_floats_;
  ExchangeArrays arrays_;
  ExecutionSpace space_;
  Scale scale_;
  ReplicaLink link_;
  int norm_tag_ = 0;

  // Transfers by bucket (gradients: and part of it), and by layer and bucket; null: none on this replica. They outlive the
  // queues.
  std::vector<Reduces> gradients_;
  Reduces averages_;
  Gathers weights_;
  std::vector<Gathers> layers_;
  std::vector<Gathers> evaluation_;
  TransferQueue sums_;
  TransferQueue gathers_;

  std::uint64_t fingerprint_ = 0;
  std::int64_t update_ = 0;
  std::vector<char> begun_;     // by bucket: its sum of this update is
  bool last_backward_ = false;  // some gradient_done of the window's last microbatch has come
  bool averaging_ = false;      // averages are under way
  bool refresh_due_ = false;    // when they are complete
  GatheredLayers gathered_;

  ExchangeSeconds gradient_seconds_;
  Stopwatch gradients_under_way_;
  Stopwatch gradients_waited_;

  // Messages of sum_over_replicas; members, so that an error leaves their memory in place.
  struct Norm;
  std::shared_ptr<Norm> norm_;
};

}  // namespace minipipe::core
