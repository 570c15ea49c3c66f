#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/model/optimizer_layout.hpp"
#include "core/model/parameter_list.hpp"
#include "core/model/replica_layout.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Copies between the host and an entry's place in an array of the parameters' layout; row-major, entry.size values. They wait
// for the work of all instances. RunError if the number of values is wrong.
std::vector<float> read_entry(const Vector<float>& buffer, const ParameterEntry& entry);
void write_entry(const Vector<float>& buffer, const ParameterEntry& entry, const std::vector<float>& values);

// Copies between the host, where the values are one behind the other, and a piece of an array. They wait for the work of all
// instances.
void read_piece(const Vector<float>& array, const Piece& piece, float* values);
void write_piece(const Vector<float>& array, const Piece& piece, const float* values);

enum class StoredField { value, first_moment, second_moment };

// A rectangle of a tensor of the model and where it lies here. A tensor of one dimension is a matrix of one row.
struct StoredPart {
  std::string name;
  StoredField field = StoredField::value;
  std::vector<int> full_shape;
  int row = 0;  // in the full tensor
  int column = 0;
  int rows = 0;
  int columns = 0;
  Vector<float> array;
  Piece piece;
};

// A part of a gradient tensor that this replica counts in norms.
struct SquarePart {
  int global_index = 0;
  Vector<float> array;
  Piece piece;
};

// The same without an array.
struct TensorPiece {
  int global_index = 0;
  Piece piece;
};
// See ParameterStore::owned_squares; places in the gradients' array.
std::vector<TensorPiece> owned_square_pieces(const ReplicaLayout& layout);

struct ParameterBytes {
  std::size_t parameters = 0;  // buffers of gathered and of evaluated layers included
  std::size_t gradients = 0;   // buffers of layers included
  std::size_t optimizer = 0;   // moments
  friend bool operator==(const ParameterBytes&, const ParameterBytes&) = default;
};

// What a ParameterStore of this layout will allocate.
ParameterBytes planned_parameter_bytes(const ReplicaLayout& layout, const OptimizerLayout& optimizer);

// The parameters of one stage on one replica with their gradients and the optimizer's moments, in flat arrays that are
// allocated once; where each tensor lies says layout(). Unsharded, without SDP, all have the same layout, but the second
// moments: there only the tensors that have some take room. Sharded, the arrays have this replica's shards, and two layers'
// weights fit into buffers in turn: layer l has number l % 2.
class ParameterStore {
 public:
  // Allocates; parameters get their initial values, everything else 0. Initial values (Radford et al. 2019, section 2.3):
  // matrices normal(0, 0.02), projections onto the residual stream normal(0, 0.02 / sqrt(2 layers)), norm weights 1,
  // biases 0; keyed by (seed, global index, place in the unsplit tensor), so that any partition gives the same model.
  ParameterStore(const ExecutionSpace& space, const ModelConfig& model, const StageLayers& layers, std::uint64_t seed,
                 OptimizerKind optimizer = OptimizerKind::adamw);
  ParameterStore(const ExecutionSpace& space, const ModelConfig& model, const StageLayers& layers, std::uint64_t seed,
                 OptimizerKind optimizer, ReplicaLayout layout);

  const ReplicaLayout& layout() const { return layout_; }
  const std::vector<ParameterEntry>& entries() const { return layout_.forward; }
  const std::vector<ParameterEntry>& trained() const { return layout_.trained; }
  const OptimizerLayout& optimizer() const { return optimizer_; }

  Vector<float> parameters() const { return parameters_; }
  Vector<float> gradients() const { return gradients_; }
  Vector<float> first_moment() const { return first_moment_; }
  Vector<float> second_moment() const { return second_moment_; }

  // What the offsets of a layer's entries count in: the whole arrays, or sharded the layer's buffers (gradients reduced once
  // per window: its part of the gradients' array).
  Vector<float> layer_weights(int layer) const;
  Vector<float> layer_gradients(int layer) const;
  // Sharded, by parity of the layer's number: the whole buffers, for the exchange with other replicas. Else empty.
  const std::array<OwnedVector<float>, 2>& layer_weight_buffers() const { return layer_weights_; }
  const std::array<OwnedVector<float>, 2>& layer_gradient_buffers() const { return layer_gradients_; }
  // Keeps the arrays that are exchanged allocated.
  std::shared_ptr<const void> share_arrays() const;
  // For the full tensors of a layer: of any layer with SDP and shards, of any block with SDP, else empty. It is the memory of
  // one of layer_weight_buffers() where those are large enough: then no layer is to be gathered in it meanwhile.
  Vector<float> evaluation_buffer() const;

  // Every element of the model's tensors, values and moments, is in owned_parts() of exactly one replica. all_parts() is what
  // this replica must be given when a checkpoint is loaded.
  std::vector<StoredPart> owned_parts() const;
  std::vector<StoredPart> all_parts() const;

  // Every gradient is in the list of exactly one replica, once gradients are reduced. In ascending order of tensors; without
  // replicas one part per tensor.
  std::vector<SquarePart> owned_squares() const;

  // Copies between the host and entry number `entry`, of entries() for parameters, of trained() for all else; row-major,
  // entry.size values. They wait for the work of all instances. Setters throw RunError if the number of values is wrong. A
  // tensor without second moments has none: an empty list. RunError for what is in shards.
  std::vector<float> parameter(std::size_t entry) const { return read_entry(parameters_, whole(entries(), entry)); }
  std::vector<float> gradient(std::size_t entry) const { return read_entry(gradients_, whole(trained(), entry)); }
  std::vector<float> first_moment(std::size_t entry) const { return read_entry(first_moment_, moments_of(entry)); }
  std::vector<float> second_moment(std::size_t entry) const;
  void set_parameter(std::size_t entry, const std::vector<float>& values) {
    write_entry(parameters_, whole(entries(), entry), values);
  }
  void set_first_moment(std::size_t entry, const std::vector<float>& values) {
    write_entry(first_moment_, moments_of(entry), values);
  }
  void set_second_moment(std::size_t entry, const std::vector<float>& values);
  bool has_second_moment(std::size_t entry) const {
    moments_of(entry);
    return optimizer_.second_moments.at(entry) >= 0;
  }

  // Number of the entry of that name in entries(), or -1.
  int find(const std::string& name) const;

  // Of all arrays, read from them.
  ParameterBytes bytes() const;

 private:
  const ParameterEntry& whole(const std::vector<ParameterEntry>& list, std::size_t entry) const;
  const ParameterEntry& moments_of(std::size_t entry) const;
  void initialise_shards(const ExecutionSpace& space, const ModelConfig& model, std::uint64_t seed);

  ReplicaLayout layout_;
  OptimizerLayout optimizer_;
  OwnedVector<float> parameters_, gradients_, first_moment_, second_moment_;
  std::array<OwnedVector<float>, 2> layer_weights_, layer_gradients_;
  OwnedVector<float> evaluation_buffer_;
};

}  // namespace minipipe::core
