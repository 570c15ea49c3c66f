#pragma once

#include <cstdint>
#include <vector>

#include "core/model/parameter_store.hpp"
#include "core/model/stage_options.hpp"

namespace minipipe::core {

// Arrays of the parameters' size that a rule needs beside the parameters: older versions (stashed: weight_copies - 1, double
// buffered: 1) or the corrected weights and their mean change (2).
int extra_weight_buffers(const KokkosStageOptions& options);

// Arrays that passes may use, the parameters included: all of these but the mean change.
int weight_arrays(const KokkosStageOptions& options);

// Which weights each pass of a stage uses. The newest version is always the store's own array, number 0 here; others are copied
// on the device just before an update changes it. Version v is that after v updates.
//
// After a drain nothing is in flight, so that a checkpoint needs of the stash nothing but the newest weights; double-buffered
// also the shadow, because the next window still uses it; corrected also the velocity. A resumed stage gets them back by the
// setters, then start_at(), and goes on as if it had never stopped.
class WeightVersions {
 public:
  // Allocates. InputError for options that make no sense.
  WeightVersions(const ExecutionSpace& space, const KokkosStageOptions& options, ParameterStore& store);

  // Number of arrays that passes may use, and each of them; number 0 is the store's.
  int buffers() const { return static_cast<int>(buffers_.size()); }
  Vector<float> buffer(int number) const { return buffers_.at(number); }
  // How often that array was written since the start: what was made from it is out of date if this has grown. The weights that
  // other replicas send after an update belong to that update.
  std::int64_t changes(int number) const { return changes_.at(number); }

  // The number of the array for a pass of the microbatch that lives in the slot. RunError if the rule asks for a version that
  // is not there: the schedule admits more than there are copies for.
  int for_forward(std::int64_t microbatch, int slot);
  int for_backward(std::int64_t microbatch, int slot);

  // Around each optimizer step. before_update: RunError if it would overwrite a version that a live microbatch needs.
  void before_update();
  void after_update(std::int64_t update);

  // Sets the number of updates done, after a resume or a change of the parameters from outside. Nothing may be in flight.
  void start_at(std::int64_t updates);
  std::int64_t version() const { return version_; }

  // State beside the newest weights; getters and setters are those of ParameterStore.
  bool has_shadow() const { return rule_ == WeightRule::double_buffered; }
  std::vector<float> shadow(std::size_t entry) const;
  void set_shadow(std::size_t entry, const std::vector<float>& values);
  bool has_velocity() const { return rule_ == WeightRule::corrected; }
  std::vector<float> velocity(std::size_t entry) const;
  void set_velocity(std::size_t entry, const std::vector<float>& values);

  std::size_t bytes() const;

 private:
  int older(std::int64_t version) const { return 1 + static_cast<int>(version % (buffers() - 1)); }
  const ParameterEntry& entry_with(bool there, std::size_t entry) const;

  ExecutionSpace space_;
  WeightRule rule_;
  std::int64_t window_, synchronous_updates_;
  double delay_, gamma_;
  ParameterStore& store_;
  std::vector<OwnedVector<float>> memory_;
  std::vector<Vector<float>> buffers_;
  std::vector<std::int64_t> changes_;
  OwnedVector<float> velocity_;
  std::vector<std::int64_t> live_;  // stashed: by slot, the version of the forward; -1: free
  std::int64_t version_ = 0;
};

}  // namespace minipipe::core
