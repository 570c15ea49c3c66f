#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model/parameter_store.hpp"
#include "core/model/tensor_cursor.hpp"
#include "core/model/weight_versions.hpp"

namespace minipipe::core {

// Copies of the matrices of weights in the type T that passes multiply with; what they are copies of stays in float. Vectors
// (biases, norms) are used as they are. Where T is float there are no copies, and all of this does nothing.
template <class T>
class WeightCopies {
 public:
  WeightCopies(const ParameterStore&, const WeightVersions&) {}
  std::span<const Vector<bf16>> newest() const { return {}; }
  void newest_copied() {}
  void refresh(const ExecutionSpace&, int) {}
  void copy_layer(const ExecutionSpace&, int) {}
  void copy_full_layer(const ExecutionSpace&, int) {}
  MatrixCopies<T> version(int) const { return {}; }
  MatrixCopies<T> full() const { return {}; }
  std::size_t bytes() const { return 0; }
};

// Where the matrices of a list of tensors lie one behind the other, each at a multiple of 64 bytes.
struct MatrixPlaces {
  // Offsets count from the start of one buffer, or with `by_layer` from that of each layer's.
  MatrixPlaces(const std::vector<ParameterEntry>& entries, int layers, bool by_layer);

  std::vector<std::size_t> offsets;         // by entry; elements
  std::vector<std::size_t> layer_elements;  // by layer
  std::size_t elements = 0;                 // of all layers
};

// Unsharded, each array of weights that passes may use has a copy; it is made anew in the first pass after the array has
// changed. Sharded, and of full layers in an evaluation, there is room for one layer: every gathering is followed by a copy.
template <>
class WeightCopies<bf16> {
 public:
  // Both are kept by reference. Allocates.
  WeightCopies(const ParameterStore& store, const WeightVersions& versions);

  // By tensor, padding included: where the copy of array number 0 lies; empty for a vector. Whoever changes that array may
  // write the copy at once, and then says so.
  std::span<const Vector<bf16>> newest() const { return newest_; }
  void newest_copied();

  // Brings the copy of that array up to date.
  void refresh(const ExecutionSpace& space, int version);
  // From the layer's gathered buffer; from the evaluation's buffer.
  void copy_layer(const ExecutionSpace& space, int layer);
  void copy_full_layer(const ExecutionSpace& space, int layer);

  MatrixCopies<bf16> version(int number) const;
  MatrixCopies<bf16> full() const;
  std::size_t bytes() const;

 private:
  void copy_matrices(const ExecutionSpace& space, const Vector<float>& from, const std::vector<ParameterEntry>& entries,
                     const MatrixPlaces& places, const Vector<bf16>& to, int layer);

  const ParameterStore& store_;
  const WeightVersions& versions_;
  MatrixPlaces places_, full_places_;
  std::vector<OwnedVector<bf16>> copies_;  // by version
  std::vector<std::int64_t> copied_;       // by version: its changes when the copy was made
  std::vector<Vector<bf16>> newest_;
  OwnedVector<bf16> layer_;
};

// What the copies for bf16 will take; `versions`: the arrays that passes may use.
std::size_t planned_copies_bytes(const ReplicaLayout& layout, int versions);

}  // namespace minipipe::core
