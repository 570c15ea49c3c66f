#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/optimizer_layout.hpp"
#include "core/model/parameter_list.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Copies between the host and an entry's place in an array of the parameters' layout; row-major, entry.size values. They wait
// for the work of all instances. RunError if the number of values is wrong.
std::vector<float> read_entry(const Vector<float>& buffer, const ParameterEntry& entry);
void write_entry(const Vector<float>& buffer, const ParameterEntry& entry, const std::vector<float>& values);

// The parameters of one stage with their gradients and the optimizer's moments, in flat arrays that are allocated once. All
// have the same layout, but the second moments: there only the tensors that have some take room.
class ParameterStore {
 public:
  // Allocates; parameters get their initial values, everything else 0. Initial values (Radford et al. 2019, section 2.3):
  // matrices normal(0, 0.02), projections onto the residual stream normal(0, 0.02 / sqrt(2 layers)), norm weights 1,
  // biases 0; keyed by (seed, global index), so that any partition gives the same model.
  ParameterStore(const ExecutionSpace& space, const ModelConfig& model, const StageLayers& layers, std::uint64_t seed,
                 OptimizerKind optimizer = OptimizerKind::adamw);

  const std::vector<ParameterEntry>& entries() const { return entries_; }
  const OptimizerLayout& optimizer() const { return optimizer_; }

  Vector<float> parameters() const { return parameters_; }
  Vector<float> gradients() const { return gradients_; }
  Vector<float> first_moment() const { return first_moment_; }
  Vector<float> second_moment() const { return second_moment_; }

  // Copies between the host and entry number `entry`; row-major, entry.size values. They wait for the work of all instances.
  // Setters throw RunError if the number of values is wrong. A tensor without second moments has none: an empty list.
  std::vector<float> parameter(std::size_t entry) const { return read_entry(parameters_, entries_.at(entry)); }
  std::vector<float> gradient(std::size_t entry) const { return read_entry(gradients_, entries_.at(entry)); }
  std::vector<float> first_moment(std::size_t entry) const { return read_entry(first_moment_, entries_.at(entry)); }
  std::vector<float> second_moment(std::size_t entry) const;
  void set_parameter(std::size_t entry, const std::vector<float>& values) {
    write_entry(parameters_, entries_.at(entry), values);
  }
  void set_first_moment(std::size_t entry, const std::vector<float>& values) {
    write_entry(first_moment_, entries_.at(entry), values);
  }
  void set_second_moment(std::size_t entry, const std::vector<float>& values);
  bool has_second_moment(std::size_t entry) const { return optimizer_.second_moments.at(entry) >= 0; }

  // Number of the entry of that name, or -1.
  int find(const std::string& name) const;

  // Bytes of the parameters' array.
  std::size_t buffer_bytes() const { return parameters_.size() * sizeof(float); }

 private:
  std::vector<ParameterEntry> entries_;
  OptimizerLayout optimizer_;
  OwnedVector<float> parameters_, gradients_, first_moment_, second_moment_;
};

}  // namespace minipipe::core
