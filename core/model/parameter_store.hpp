#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/parameter_list.hpp"
#include "core/optim/adamw.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// The parameters of one stage with their gradients and AdamW moments: four flat arrays of the same layout, allocated once.
class ParameterStore {
 public:
  // Allocates; parameters get their initial values, everything else 0. Initial values (Radford et al. 2019, section 2.3):
  // matrices normal(0, 0.02), projections onto the residual stream normal(0, 0.02 / sqrt(2 layers)), LayerNorm weights 1,
  // biases 0; keyed by (seed, global index), so that any partition gives the same model.
  ParameterStore(const ExecutionSpace& space, const ModelConfig& model, const StageLayers& layers, std::uint64_t seed);

  const std::vector<ParameterEntry>& entries() const { return entries_; }
  const std::vector<ParameterRange>& ranges() const { return ranges_; }  // for the optimizer: the whole arrays

  Vector<float> parameters() const { return parameters_; }
  Vector<float> gradients() const { return gradients_; }
  Vector<float> first_moment() const { return first_moment_; }
  Vector<float> second_moment() const { return second_moment_; }

  // Copies between the host and entry number `entry`; row-major, entry.size values. They wait for the work of all instances.
  // Setters throw RunError if the number of values is wrong.
  std::vector<float> parameter(std::size_t entry) const { return read(parameters_, entry); }
  std::vector<float> gradient(std::size_t entry) const { return read(gradients_, entry); }
  std::vector<float> first_moment(std::size_t entry) const { return read(first_moment_, entry); }
  std::vector<float> second_moment(std::size_t entry) const { return read(second_moment_, entry); }
  void set_parameter(std::size_t entry, const std::vector<float>& values) { write(parameters_, entry, values); }
  void set_first_moment(std::size_t entry, const std::vector<float>& values) { write(first_moment_, entry, values); }
  void set_second_moment(std::size_t entry, const std::vector<float>& values) { write(second_moment_, entry, values); }

  // Number of the entry of that name, or -1.
  int find(const std::string& name) const;

  // Bytes of one of the four arrays.
  std::size_t buffer_bytes() const { return parameters_.size() * sizeof(float); }

 private:
  std::vector<float> read(const OwnedVector<float>& buffer, std::size_t entry) const;
  void write(const OwnedVector<float>& buffer, std::size_t entry, const std::vector<float>& values);

  std::vector<ParameterEntry> entries_;
  std::vector<ParameterRange> ranges_;
  OwnedVector<float> parameters_, gradients_, first_moment_, second_moment_;
};

}  // namespace minipipe::core
