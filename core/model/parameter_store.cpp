#include "core/model/parameter_store.hpp"

#include <cmath>

#include "core/kernels/elementwise.hpp"
#include "core/kernels/initialise.hpp"
#include "core/model/fence.hpp"
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
                               std::uint64_t seed, OptimizerKind optimizer)
    : entries_(parameter_list(model, layers)),
      optimizer_(entries_, optimizer),
      parameters_("minipipe::model::parameters", buffer_floats(entries_)),
      gradients_("minipipe::model::gradients", buffer_floats(entries_)),
      first_moment_("minipipe::model::first_moment", buffer_floats(entries_)),
      second_moment_("minipipe::model::second_moment", optimizer_.second_moment_floats) {
  for (const ParameterEntry& entry : entries_) {
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

std::vector<float> ParameterStore::second_moment(std::size_t entry) const {
  if (!has_second_moment(entry)) return {};
  ParameterEntry place = entries_[entry];
  place.offset = static_cast<std::size_t>(optimizer_.second_moments[entry]);
  return read_entry(second_moment_, place);
}

void ParameterStore::set_second_moment(std::size_t entry, const std::vector<float>& values) {
  if (!has_second_moment(entry)) {
    if (!values.empty()) throw RunError(entries_[entry].name + " has no second moments with this optimizer");
    return;
  }
  ParameterEntry place = entries_[entry];
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

}  // namespace minipipe::core
