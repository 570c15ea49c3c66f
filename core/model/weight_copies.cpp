#include "core/model/weight_copies.hpp"

#include <algorithm>

#include "core/kernels/elementwise.hpp"
#include "core/model/padding.hpp"

namespace minipipe::core {

namespace {

constexpr int all_layers = -1;

bool is_matrix(const ParameterEntry& entry) { return entry.shape.size() > 1; }

int layers_of(const ReplicaLayout& layout) { return static_cast<int>(layout.full_layer_floats.size()); }

// Elements of the room for one layer.
std::size_t layer_elements(const ReplicaLayout& layout, const MatrixPlaces& places, const MatrixPlaces& full) {
  const bool sharded = layout.options.sharded();
  const std::size_t count = full.layer_elements.size();
  std::size_t most = 0;
  for (std::size_t l = 0; l < count; ++l) {
    const bool block = l > 0 && l + 1 < count;
    if (sharded) most = std::max(most, places.layer_elements[l]);
    if (layout.options.sdp() && (sharded || block)) most = std::max(most, full.layer_elements[l]);
  }
  return most;
}

}  // namespace

MatrixPlaces::MatrixPlaces(const std::vector<ParameterEntry>& entries, int layers, bool by_layer)
    : layer_elements(static_cast<std::size_t>(layers), 0) {
  constexpr std::size_t line = 64 / sizeof(bf16);
  for (const ParameterEntry& entry : entries) {
    std::size_t& in_layer = layer_elements.at(static_cast<std::size_t>(entry.layer));
    offsets.push_back(by_layer ? in_layer : elements);
    const std::size_t taken = is_matrix(entry) ? (entry.size + line - 1) / line * line : 0;
    in_layer += taken;
    elements += taken;
  }
}

std::size_t planned_copies_bytes(const ReplicaLayout& layout, int versions) {
  const MatrixPlaces places(layout.forward, layers_of(layout), layout.options.sharded());
  const MatrixPlaces full(layout.full, layers_of(layout), true);
  const std::size_t whole = layout.options.sharded() ? 0 : static_cast<std::size_t>(versions) * places.elements;
  return (whole + layer_elements(layout, places, full)) * sizeof(bf16);
}

WeightCopies<bf16>::WeightCopies(const ParameterStore& store, const WeightVersions& versions)
    : store_(store),
      versions_(versions),
      places_(store.entries(), layers_of(store.layout()), store.layout().options.sharded()),
      full_places_(store.layout().full, layers_of(store.layout()), true),
      layer_("minipipe::model::layer_copy", layer_elements(store.layout(), places_, full_places_)) {
  if (store.layout().options.sharded()) return;
  for (int number = 0; number < versions.buffers(); ++number) {
    copies_.emplace_back("minipipe::model::weight_copy", places_.elements);
    copied_.push_back(-1);
  }
  // Room for a copy is a multiple of 64 bytes, and so of 16 elements, to which the parameters are padded.
  for (std::size_t e = 0; e < store.entries().size(); ++e) {
    const ParameterEntry& entry = store.entries()[e];
    newest_.push_back(is_matrix(entry) ? slice<bf16>(copies_[0], places_.offsets[e], padded(entry.size)) : Vector<bf16>());
  }
}

void WeightCopies<bf16>::newest_copied() {
  if (!copied_.empty()) copied_[0] = versions_.changes(0);
}

void WeightCopies<bf16>::refresh(const ExecutionSpace& space, int version) {
  if (copies_.empty() || copied_.at(version) == versions_.changes(version)) return;
  copy_matrices(space, versions_.buffer(version), store_.entries(), places_, copies_[version], all_layers);
  copied_[version] = versions_.changes(version);
}

void WeightCopies<bf16>::copy_layer(const ExecutionSpace& space, int layer) {
  copy_matrices(space, store_.layer_weights(layer), store_.entries(), places_, layer_, layer);
}

void WeightCopies<bf16>::copy_full_layer(const ExecutionSpace& space, int layer) {
  copy_matrices(space, store_.evaluation_buffer(), store_.layout().full, full_places_, layer_, layer);
}

void WeightCopies<bf16>::copy_matrices(const ExecutionSpace& space, const Vector<float>& from,
                                       const std::vector<ParameterEntry>& entries, const MatrixPlaces& places,
                                       const Vector<bf16>& to, int layer) {
  for (std::size_t e = 0; e < entries.size(); ++e) {
    const ParameterEntry& entry = entries[e];
    if (!is_matrix(entry) || (layer != all_layers && entry.layer != layer)) continue;
    convert<bf16, float>(space, slice(to, places.offsets[e], entry.size), slice(from, entry.offset, entry.size));
  }
}

MatrixCopies<bf16> WeightCopies<bf16>::version(int number) const {
  const Vector<bf16> buffer = copies_.empty() ? layer_ : copies_.at(number);
  return {std::vector<Vector<bf16>>(places_.layer_elements.size(), buffer), places_.offsets};
}

MatrixCopies<bf16> WeightCopies<bf16>::full() const {
  return {std::vector<Vector<bf16>>(full_places_.layer_elements.size(), layer_), full_places_.offsets};
}

std::size_t WeightCopies<bf16>::bytes() const {
  std::size_t elements = layer_.size();
  for (const auto& copy : copies_) elements += copy.size();
  return elements * sizeof(bf16);
}

}  // namespace minipipe::core
