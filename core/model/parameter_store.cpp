#include "core/model/parameter_store.hpp"

#include <cmath>

#include "core/kernels/elementwise.hpp"
#include "core/kernels/initialise.hpp"
#include "core/model/fence.hpp"
#include "core/model/padding.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

using HostVector = Kokkos::View<float*, Kokkos::LayoutRight, HostSpace, Unmanaged>;
using ConstHostVector = Kokkos::View<const float*, Kokkos::LayoutRight, HostSpace, Unmanaged>;

void initialise(const ExecutionSpace& space, const Vector<float>& values, Start start, int layers, std::uint64_t seed,
                std::uint64_t index) {
  switch (start) {
    case Start::normal:
      fill_normal<float>(space, values, 0.02, seed, index);
      break;
    case Start::normal_residual:
      fill_normal<float>(space, values, 0.02 / std::sqrt(2.0 * layers), seed, index);
      break;
    case Start::ones:
      fill<float>(space, values, 1.0f);
      break;
    case Start::zeros:
      break;
  }
}

}  // namespace

ParameterStore::ParameterStore(const ExecutionSpace& space, const ModelConfig& model, const StageLayers& layers,
                               std::uint64_t seed)
    : entries_(parameter_list(model, layers)),
      parameters_("minipipe::model::parameters", buffer_floats(entries_)),
      gradients_("minipipe::model::gradients", buffer_floats(entries_)),
      first_moment_("minipipe::model::first_moment", buffer_floats(entries_)),
      second_moment_("minipipe::model::second_moment", buffer_floats(entries_)) {
  for (const ParameterEntry& entry : entries_) {
    // The padding behind an entry is part of its range: it stays 0, and neighbours join into long ranges.
    ranges_.push_back({static_cast<std::int64_t>(entry.offset), static_cast<std::int64_t>(padded(entry.size)), entry.decay});
    initialise(space, slice(parameters(), entry.offset, entry.size), entry.start, model.layers, seed, entry.global_index);
  }
  fence_instance(space, "before the parameters are used, because other instances may read them");
}

int ParameterStore::find(const std::string& name) const {
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    if (entries_[e].name == name) return static_cast<int>(e);
  }
  return -1;
}

std::vector<float> ParameterStore::read(const OwnedVector<float>& buffer, std::size_t entry) const {
  const ParameterEntry& e = entries_.at(entry);
  std::vector<float> values(e.size);
  Kokkos::deep_copy(HostVector(values.data(), values.size()), slice<float>(buffer, e.offset, e.size));
  return values;
}

void ParameterStore::write(const OwnedVector<float>& buffer, std::size_t entry, const std::vector<float>& values) {
  const ParameterEntry& e = entries_.at(entry);
  if (values.size() != e.size) {
    throw RunError(e.name + " has " + std::to_string(e.size) + " values, not " + std::to_string(values.size()));
  }
  Kokkos::deep_copy(slice<float>(buffer, e.offset, e.size), ConstHostVector(values.data(), values.size()));
}

}  // namespace minipipe::core
