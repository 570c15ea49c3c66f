#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/kernels/reduce.hpp"
#include "core/model/microbatch_loss.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Mean losses of microbatches. They stay on the device until somebody asks, so that a step does not wait for them.
class LossRecord {
 public:
  // `capacity`: losses kept on the device; when it is full they move to the host, which waits once. 0: no losses here.
  explicit LossRecord(std::size_t capacity)
      : capacity_(capacity),
        sums_("minipipe::model::losses", capacity > 0 ? capacity + 1 : 0),
        host_(Kokkos::create_mirror_view(HostSpace(), sums_)) {
    waiting_.reserve(capacity);
  }

  // Enqueues the sum of `token_losses`, of which `counted` are not zero by rule; sums are in double and in a fixed order.
  void add(const ExecutionSpace& space, std::int64_t microbatch, std::int64_t counted, const Vector<float>& token_losses,
           const Vector<double>& workspace) {
    if (waiting_.size() == capacity_) collect(space);
    sum<float>(space, slice<double>(sums_, waiting_.size(), 1), token_losses, workspace, false);
    waiting_.push_back({microbatch, 0.0, counted});
  }

  // Waits and returns one mean at once.
  MicrobatchLoss now(const ExecutionSpace& space, std::int64_t microbatch, std::int64_t counted,
                     const Vector<float>& token_losses, const Vector<double>& workspace) {
    const Vector<double> result = slice<double>(sums_, capacity_, 1);
    sum<float>(space, result, token_losses, workspace, false);
    return {microbatch, mean(read_scalar(space, result), counted), counted};
  }

  std::vector<MicrobatchLoss> take(const ExecutionSpace& space) {
    collect(space);
    return std::exchange(done_, {});
  }

  std::size_t bytes() const { return sums_.size() * sizeof(double); }

 private:
  static double mean(double sum, std::int64_t counted) { return counted > 0 ? sum / static_cast<double>(counted) : 0.0; }

  void collect(const ExecutionSpace& space) {
    if (waiting_.empty()) return;
    if constexpr (!on_host) Kokkos::deep_copy(space, host_, sums_);
    fence(space, "before losses are read on the host, because they were enqueued");
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      waiting_[i].loss = mean(host_(i), waiting_[i].tokens);
      done_.push_back(waiting_[i]);
    }
    waiting_.clear();
  }

  std::size_t capacity_;
  OwnedVector<double> sums_;
  OwnedHostVector<double> host_;
  std::vector<MicrobatchLoss> waiting_, done_;
};

}  // namespace minipipe::core
