#include "core/model/parameter_store.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/kernels/elementwise.hpp"
#include "core/kernels/initialise.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

using HostVector = Kokkos::View<float*, Kokkos::LayoutRight, HostSpace, Unmanaged>;
using ConstHostVector = Kokkos::View<const float*, Kokkos::LayoutRight, HostSpace, Unmanaged>;

// The initial values of a tensor in a buffer of zeros.
void initialise(const ExecutionSpace& space, const Vector<float>& buffer, const ParameterEntry& entry, const ModelConfig& model,
                std::uint64_t seed) {
  const Vector<float> values = slice(buffer, entry.offset, entry.size);
  if (entry.start == Start::zeros) return;
  if (entry.start == Start::ones) {
    fill<float>(space, values, 1.0f);
    return;
  }
  const auto uniform = [&](double low, double high, UniformMap map) {
    fill_uniform<float>(space, values, low, high, map, seed, entry.global_index);
  };
  if (entry.start == Start::convolution) {
    const double bound = 1 / std::sqrt(static_cast<double>(model.conv_width));
    uniform(-bound, bound, UniformMap::identity);
    return;
  }
  if (entry.start == Start::decay_rate) {
    uniform(1, 16, UniformMap::logarithm);
    return;
  }
  if (entry.start == Start::time_step) {
    uniform(std::log(1e-3), std::log(1e-1), UniformMap::inverse_softplus_of_exponential);
    return;
  }
  // Branches that add to the residual stream.
  const double branches = model.pattern.empty() ? 2.0 * model.layers : 1.0 * model.layers;
  const double deviation = entry.start == Start::normal ? 0.02 : 0.02 / std::sqrt(branches);
  if (entry.shape == entry.full_shape) {
    fill_normal<float>(space, values, deviation, seed, entry.global_index);
    return;
  }
  const MatrixShape shape = matrix_shape(entry.shape), full = matrix_shape(entry.full_shape);
  for (const Slab& slab : entry.slabs) {
    const std::int64_t start = static_cast<std::int64_t>(slab.row) * shape.columns + slab.column;
    const NormalRectangle rectangle{slab.rows, slab.columns, shape.columns, slab.full_row, slab.full_column, full.columns};
    fill_normal<float>(space, slice<float>(values, start, static_cast<std::int64_t>(entry.size) - start), rectangle, deviation,
                       seed, entry.global_index);
  }
}

// Floats of all arrays.
struct StoreSizes {
  std::int64_t parameters, gradients, first_moment, second_moment;
  std::array<std::int64_t, 2> layer_weights{}, layer_gradients{};
  std::int64_t evaluation = 0;  // of memory of its own

  StoreSizes(const ReplicaLayout& layout, const OptimizerLayout& optimizer)
      : parameters(layout.parameter_floats),
        gradients(layout.gradient_floats),
        first_moment(layout.moment_floats),
        second_moment(static_cast<std::int64_t>(optimizer.second_moment_floats)) {
    const bool sharded = layout.options.sharded();
    const std::size_t count = layout.full_layer_floats.size();
    for (std::size_t l = 0; l < count; ++l) {
      const auto grow = [](std::int64_t& size, std::int64_t floats) { size = std::max(size, floats); };
      if (sharded) grow(layer_weights[l % 2], layout.forward_layer_floats[l]);
      if (layout.sharded_gradients()) grow(layer_gradients[l % 2], layout.trained_layer_floats[l]);
      const bool block = l > 0 && l + 1 < count;
      if (layout.options.sdp() && (sharded || block)) grow(evaluation, layout.full_layer_floats[l]);
    }
    if (evaluation <= std::max(layer_weights[0], layer_weights[1])) evaluation = 0;
  }
};

}  // namespace

ParameterBytes planned_parameter_bytes(const ReplicaLayout& layout, const OptimizerLayout& optimizer) {
  const StoreSizes sizes(layout, optimizer);
  const auto bytes = [](std::int64_t floats) { return static_cast<std::size_t>(floats) * sizeof(float); };
  return {bytes(sizes.parameters + sizes.layer_weights[0] + sizes.layer_weights[1] + sizes.evaluation),
          bytes(sizes.gradients + sizes.layer_gradients[0] + sizes.layer_gradients[1]),
          bytes(sizes.first_moment + sizes.second_moment)};
}

ParameterStore::ParameterStore(const ExecutionSpace& space, const ModelConfig& model, const StageLayers& layers,
                               std::uint64_t seed, OptimizerKind optimizer)
    : ParameterStore(space, model, layers, seed, optimizer, ReplicaLayout(model, layers, {})) {}

ParameterStore::ParameterStore(const ExecutionSpace& space, const ModelConfig& model, const StageLayers&, std::uint64_t seed,
                               OptimizerKind optimizer, ReplicaLayout layout)
    : layout_(std::move(layout)), optimizer_(layout_, optimizer) {
  const StoreSizes sizes(layout_, optimizer_);
  parameters_ = OwnedVector<float>("minipipe::model::parameters", sizes.parameters);
  gradients_ = OwnedVector<float>("minipipe::model::gradients", sizes.gradients);
  first_moment_ = OwnedVector<float>("minipipe::model::first_moment", sizes.first_moment);
  second_moment_ = OwnedVector<float>("minipipe::model::second_moment", sizes.second_moment);
  for (int parity = 0; parity < 2; ++parity) {
    layer_weights_[parity] = OwnedVector<float>("minipipe::model::layer_weights", sizes.layer_weights[parity]);
    layer_gradients_[parity] = OwnedVector<float>("minipipe::model::layer_gradients", sizes.layer_gradients[parity]);
  }
  evaluation_buffer_ = OwnedVector<float>("minipipe::model::evaluation_weights", sizes.evaluation);
  if (layout_.options.sharded()) {
    initialise_shards(space, model, seed);
  } else {
    for (const ParameterEntry& entry : entries()) initialise(space, parameters_, entry, model, seed);
  }
  fence(space, "before the parameters are used, because other instances may read them");
}

// The layers one after the other in their buffers, of which this replica keeps its shards.
void ParameterStore::initialise_shards(const ExecutionSpace& space, const ModelConfig& model, std::uint64_t seed) {
  for (std::size_t l = 0; l < layout_.layers.size(); ++l) {
    const Vector<float> buffer = layer_weights(static_cast<int>(l));
    fill<float>(space, buffer, 0.0f);
    for (const ParameterEntry& entry : entries()) {
      if (entry.layer == static_cast<int>(l)) initialise(space, buffer, entry, model, seed);
    }
    for (const Bucket& bucket : layout_.layers[l]) {
      const LinearRange own = bucket.shard(layout_.options.replica);
      std::int64_t to = bucket.shard_offset;
      for (const Piece& piece : cut(bucket.parameters, own.begin, own.end)) {
        for_runs(piece, [&](std::int64_t offset, std::int64_t floats) {
          copy<float>(space, slice<float>(parameters_, to, floats), slice<float>(buffer, offset, floats));
          to += floats;
        });
      }
    }
  }
}

Vector<float> ParameterStore::evaluation_buffer() const {
  if (evaluation_buffer_.size() > 0 || !layout_.options.sdp()) return evaluation_buffer_;
  return layer_weights_[layer_weights_[1].size() > layer_weights_[0].size() ? 1 : 0];
}

std::shared_ptr<const void> ParameterStore::share_arrays() const {
  return std::make_shared<const std::array<OwnedVector<float>, 7>>(
      std::array<OwnedVector<float>, 7>{parameters_, gradients_, layer_weights_[0], layer_weights_[1], layer_gradients_[0],
                                        layer_gradients_[1], evaluation_buffer_});
}

Vector<float> ParameterStore::layer_weights(int layer) const {
  if (!layout_.options.sharded()) return parameters_;
  return slice<float>(layer_weights_[layer % 2], 0, layout_.forward_layer_floats.at(layer));
}

Vector<float> ParameterStore::layer_gradients(int layer) const {
  if (!layout_.options.sharded()) return gradients_;
  const std::int64_t floats = layout_.trained_layer_floats.at(layer);
  if (layout_.sharded_gradients()) return slice<float>(layer_gradients_[layer % 2], 0, floats);
  return slice<float>(gradients_, layout_.gradient_layer_offsets.at(layer), floats);
}

ParameterBytes ParameterStore::bytes() const {
  const auto of = [](auto&... arrays) { return (arrays.size() + ...) * sizeof(float); };
  return {of(parameters_, layer_weights_[0], layer_weights_[1], evaluation_buffer_),
          of(gradients_, layer_gradients_[0], layer_gradients_[1]), of(first_moment_, second_moment_)};
}

const ParameterEntry& ParameterStore::whole(const std::vector<ParameterEntry>& list, std::size_t entry) const {
  if (layout_.options.sharded()) throw RunError(list.at(entry).name + " is in shards; it has no place of its own");
  return list.at(entry);
}

const ParameterEntry& ParameterStore::moments_of(std::size_t entry) const {
  if (layout_.zero1()) throw RunError("the moments of " + trained().at(entry).name + " are in shards");
  return whole(trained(), entry);
}

int ParameterStore::find(const std::string& name) const {
  for (std::size_t e = 0; e < entries().size(); ++e) {
    if (entries()[e].name == name) return static_cast<int>(e);
  }
  return -1;
}

std::vector<float> ParameterStore::second_moment(std::size_t entry) const {
  if (!has_second_moment(entry)) return {};
  ParameterEntry place = trained()[entry];
  place.offset = static_cast<std::size_t>(optimizer_.second_moments[entry]);
  return read_entry(second_moment_, place);
}

void ParameterStore::set_second_moment(std::size_t entry, const std::vector<float>& values) {
  if (!has_second_moment(entry)) {
    if (!values.empty()) throw RunError(trained()[entry].name + " has no second moments with this optimizer");
    return;
  }
  ParameterEntry place = trained()[entry];
  place.offset = static_cast<std::size_t>(optimizer_.second_moments[entry]);
  write_entry(second_moment_, place, values);
}

std::vector<float> read_entry(const Vector<float>& buffer, const ParameterEntry& entry) {
  std::vector<float> values(entry.size);
  Kokkos::deep_copy(HostVector(values.data(), values.size()), slice<float>(buffer, entry.offset, entry.size));
  return values;
}

void write_entry(const Vector<float>& buffer, const ParameterEntry& entry, const std::vector<float>& values) {
  if (values.size() != entry.size) {
    throw RunError(entry.name + " has " + std::to_string(entry.size) + " values, not " + std::to_string(values.size()));
  }
  Kokkos::deep_copy(slice<float>(buffer, entry.offset, entry.size), ConstHostVector(values.data(), values.size()));
}

void read_piece(const Vector<float>& array, const Piece& piece, float* values) {
  for_runs(piece, [&](std::int64_t offset, std::int64_t floats) {
    Kokkos::deep_copy(HostVector(values, static_cast<std::size_t>(floats)), slice<float>(array, offset, floats));
    values += floats;
  });
}

void write_piece(const Vector<float>& array, const Piece& piece, const float* values) {
  for_runs(piece, [&](std::int64_t offset, std::int64_t floats) {
    Kokkos::deep_copy(slice<float>(array, offset, floats), ConstHostVector(values, static_cast<std::size_t>(floats)));
    values += floats;
  });
}

}  // namespace minipipe::core
