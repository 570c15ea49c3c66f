#pragma once

#include <optional>

#include "core/model/replica_layout.hpp"
#include "core/model/stage_options.hpp"
#include "core/parallel/exchange_sizes.hpp"

namespace minipipe::core {

// The replicas of a stage in turn, for plans of all of them: what they have in common is made once.
class StageReplicas {
 public:
  // Of replica options.replication.replica.
  StageReplicas(const KokkosStageOptions& options, ExchangeMemory memory)
      : options_(options), memory_(memory), layout_(options.model, options.layers, options.replication) {}

  void move_to(int replica) {
    options_.replication.replica = replica;
    if (layout_.move_to(replica)) sizer_.reset();
  }

  const KokkosStageOptions& options() const { return options_; }
  const ReplicaLayout& layout() const { return layout_; }
  // Only where there are several replicas.
  ExchangeSizes exchange() {
    if (!sizer_) sizer_.emplace(layout_, memory_);
    return sizer_->sizes(layout_);
  }

 private:
  KokkosStageOptions options_;
  ExchangeMemory memory_;
  ReplicaLayout layout_;
  std::optional<ExchangeSizer> sizer_;
};

}  // namespace minipipe::core
