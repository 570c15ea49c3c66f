#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/kernels/elementwise.hpp"
#include "unit_tests/core/model/pipeline.hpp"
#include "unit_tests/core/model/replicas.hpp"

namespace minipipe::core::test {

// Elements of pieces in linear order.
inline std::vector<float> read_pieces(const Vector<float>& array, const Pieces& pieces) {
  std::vector<float> values;
  for (const Piece& piece : pieces) {
    for (std::int64_t row = 0; row < piece.rows; ++row) {
      ParameterEntry run;
      run.offset = static_cast<std::size_t>(piece.offset + row * piece.stride);
      run.size = static_cast<std::size_t>(piece.columns);
      const std::vector<float> part = read_entry(array, run);
      values.insert(values.end(), part.begin(), part.end());
    }
  }
  return values;
}

inline void write_pieces(const Vector<float>& array, const Pieces& pieces, const std::vector<float>& values) {
  auto next = values.begin();
  for (const Piece& piece : pieces) {
    for (std::int64_t row = 0; row < piece.rows; ++row) {
      ParameterEntry run;
      run.offset = static_cast<std::size_t>(piece.offset + row * piece.stride);
      run.size = static_cast<std::size_t>(piece.columns);
      write_entry(array, run, {next, next + piece.columns});
      next += piece.columns;
    }
  }
}

// Replicas of a one-stage pipeline in one process, one after another; what they share is copied by hand.
class ReplicaGroup {
 public:
  // `options`: of all; replication.replica is set here.
  ReplicaGroup(KokkosStageOptions options, std::vector<ReplicaOptions> replicas, BatchSource& source)
      : window_(options.window), slots_(options.activation_slots) {
    options.layers = {true, 0, options.model.layers, true};
    for (const ReplicaOptions& replica : replicas) {
      options.replication = replica;
      stages.push_back(std::make_unique<KokkosStage>(options, source));
      exchanges_.push_back(std::make_unique<Exchange>(*this, replica.replica));
      stages.back()->attach(*exchanges_.back());
    }
  }

  void step(std::int64_t update) {
    update_ = update;
    for (const auto& stage : stages) {
      for (std::int64_t k = 0; k < window_; ++k) {
        const std::int64_t microbatch = update * window_ + k;
        const int slot = static_cast<int>(microbatch % slots_);
        stage->forward(microbatch, slot, -1, -1);
        stage->backward(microbatch, slot, -1, -1);
      }
      stage->complete_output();
    }
    if (!layout(0).options.sharded()) reduce(update);
    all_squares = squares_of_all();
    for (const auto& stage : stages) {
      stage->update(update);
      stage->complete_output();
    }
    if (!layout(0).options.sharded()) share_weights();
  }

  // Of all replicas in the order of microbatches.
  std::vector<double> take_losses() {
    std::map<std::int64_t, double> all;
    for (const auto& stage : stages) {
      for (const MicrobatchLoss& loss : stage->take_losses()) all[loss.microbatch] = loss.loss;
    }
    std::vector<double> losses;
    for (const auto& [microbatch, loss] : all) losses.push_back(loss);
    return losses;
  }

  const ReplicaLayout& layout(int replica) const { return stages.at(replica)->replica_layout(); }

  // A layer's full tensors as their holders have them.
  void assemble(int layer, const Vector<float>& target) const {
    for (std::size_t b = 0; b < layout(0).layers.at(layer).size(); ++b) {
      const Bucket& first = layout(0).layers[layer][b];
      const int holder = first.holders.front();
      const std::vector<float> values = layout(0).options.sharded() ? gathered(layer, b)
                                                                    : read_pieces(stages[holder]->parameters().parameters(),
                                                                                  layout(holder).layers[layer][b].parameters);
      write_pieces(target, first.full, values);
    }
  }

  std::vector<std::unique_ptr<KokkosStage>> stages;
  // Sums of squares of the gradients of the last update by tensor, each element counted by its owner.
  std::vector<double> all_squares;
  int calls_of_gradient_done = 0, calls_with_last = 0;

 private:
  class Exchange : public LayerExchange {
   public:
    Exchange(ReplicaGroup& group, int replica) : group_(group), replica_(replica) {}
    void fetch(int layer, int /*next*/) override {
      KokkosStage& stage = *group_.stages[replica_];
      stage.complete_output();
      for (std::size_t b = 0; b < layout().layers.at(layer).size(); ++b) {
        const Bucket& bucket = layout().layers[layer][b];
        if (bucket.parameters.empty()) continue;
        write_pieces(stage.parameters().layer_weights(layer), bucket.parameters, group_.gathered(layer, b));
      }
    }
    void assemble(int layer, const Vector<float>& target) override { group_.assemble(layer, target); }
    void gradient_begins(int layer) override {
      if (!layout().sharded_gradients()) return;
      KokkosStage& stage = *group_.stages[replica_];
      fill<float>(stage.space(), stage.parameters().layer_gradients(layer), 0.0f);
    }
    void gradient_done(int layer, bool last) override {
      ++group_.calls_of_gradient_done;
      if (last) ++group_.calls_with_last;
      if (layout().sharded_gradients()) group_.add_to_shards(replica_, layer);
    }
    bool gradients_ready(std::int64_t) override { return true; }
    void weights_changed(std::int64_t) override {}
    bool weights_ready() override { return true; }
    std::vector<double> sum_over_replicas(const std::vector<double>& mine) override { return group_.add_squares(mine); }
    void progress() override {}
    std::size_t bytes() const override { return 0; }

   private:
    const ReplicaLayout& layout() const { return group_.layout(replica_); }
    ReplicaGroup& group_;
    int replica_;
  };

  Vector<float> shard(int replica, const Bucket& bucket, const Vector<float>& array) const {
    const int number = bucket.number_of(replica);
    return slice<float>(array, bucket.shard_offset, bucket.shard_end(number) - bucket.shard_begin(number));
  }

  // Of the holders' shards.
  std::vector<float> gathered(int layer, std::size_t b) const {
    std::vector<float> values;
    for (const int holder : layout(0).layers[layer][b].holders) {
      const Bucket& bucket = layout(holder).layers[layer][b];
      const Vector<float> part = shard(holder, bucket, stages[holder]->parameters().parameters());
      const std::vector<float> read = read_pieces(part, {{0, 1, static_cast<std::int64_t>(part.size()), 0}});
      values.insert(values.end(), read.begin(), read.end());
    }
    return values;
  }

  void add_to_shards(int replica, int layer) {
    KokkosStage& stage = *stages[replica];
    stage.complete_output();
    for (std::size_t b = 0; b < layout(replica).layers.at(layer).size(); ++b) {
      const Bucket& mine = layout(replica).layers[layer][b];
      if (mine.number_of(replica) < 0) continue;
      const std::vector<float> values = read_pieces(stage.parameters().layer_gradients(layer), mine.gradients);
      const double scale = stage.gradient_scale(mine.holders, update_);
      for (const int holder : mine.holders) {
        const Bucket& bucket = layout(holder).layers[layer][b];
        const Vector<float> target = shard(holder, bucket, stages[holder]->parameters().gradients());
        const Pieces whole{{0, 1, static_cast<std::int64_t>(target.size()), 0}};
        std::vector<float> sums = read_pieces(target, whole);
        const std::int64_t begin = bucket.shard_begin(bucket.number_of(holder));
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<float>(scale * values[begin + i]);
        write_pieces(target, whole, sums);
      }
    }
  }

  std::vector<double> squares_of_all() const {
    std::vector<double> sums(layout(0).full.size(), 0.0);
    for (const auto& stage : stages) {
      for (const SquarePart& part : stage->parameters().owned_squares()) {
        for (const float g : read_pieces(part.array, {part.piece})) sums.at(part.global_index) += static_cast<double>(g) * g;
      }
    }
    return sums;
  }
  // Replicas run one after another: what the others would send is known beforehand.
  std::vector<double> add_squares(const std::vector<double>& mine) const {
    EXPECT_EQ(mine.size(), all_squares.size());
    for (std::size_t t = 0; t < mine.size(); ++t) EXPECT_LE(mine[t], all_squares[t] * (1 + 1e-9));
    return all_squares;
  }

  // Gradients become the weighted means over their holders.
  void reduce(std::int64_t update) {
    for (std::size_t b = 0; b < layout(0).buckets.size(); ++b) {
      const std::vector<int> holders = layout(0).buckets[b].holders;
      std::vector<double> sums;
      for (const int holder : holders) {
        const std::vector<float> values =
            read_pieces(stages[holder]->parameters().gradients(), layout(holder).buckets[b].gradients);
        sums.resize(values.size(), 0.0);
        for (std::size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
      }
      const double scale = stages[0]->gradient_scale(holders, update);
      std::vector<float> means;
      for (const double sum : sums) means.push_back(static_cast<float>(scale * sum));
      for (const int holder : holders) {
        write_pieces(stages[holder]->parameters().gradients(), layout(holder).buckets[b].gradients, means);
      }
    }
  }

  // zero1: each holder has stepped its shard of a bucket. Backward masking: who does not hold a bucket gets it from a holder.
  void share_weights() {
    for (std::size_t b = 0; b < layout(0).buckets.size(); ++b) {
      const std::vector<int> holders = layout(0).buckets[b].holders;
      std::vector<float> values = parameters_of(holders.front(), b);
      for (std::size_t h = 0; layout(0).zero1() && h < holders.size(); ++h) {
        const Bucket& bucket = layout(holders[h]).buckets[b];
        const std::vector<float> own = parameters_of(holders[h], b);
        const std::int64_t begin = bucket.shard_begin(static_cast<int>(h)), end = bucket.shard_end(static_cast<int>(h));
        std::copy(own.begin() + begin, own.begin() + end, values.begin() + begin);
      }
      for (std::size_t r = 0; r < stages.size(); ++r) {
        const Bucket& bucket = layout(static_cast<int>(r)).buckets[b];
        if (!bucket.parameters.empty()) write_pieces(stages[r]->parameters().parameters(), bucket.parameters, values);
      }
    }
  }
  std::vector<float> parameters_of(int replica, std::size_t b) const {
    return read_pieces(stages[replica]->parameters().parameters(), layout(replica).buckets[b].parameters);
  }

  std::int64_t window_, slots_, update_ = 0;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
};

}  // namespace minipipe::core::test
