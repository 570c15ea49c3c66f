#include "core/train/checkpointing.hpp"

#include <list>

#include "core/deck/parse.hpp"
#include "core/deck/restart.hpp"
#include "core/train/options.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

// One tensor and its state in host memory; what a stage does not have is empty.
struct HostTensor {
  std::vector<float> value, m, v, shadow, velocity;
};

float* or_null(std::vector<float>& values) { return values.empty() ? nullptr : values.data(); }

std::vector<hsize_t> file_shape(const ParameterEntry& entry) { return {entry.shape.begin(), entry.shape.end()}; }

}  // namespace

void save_checkpoint(MPI_Comm comm, const std::filesystem::path& file, Pipeline& pipeline, const CheckpointState& state) {
  std::list<HostTensor> copies;
  std::vector<TensorRef> tensors;
  for (LocalStage& stage : pipeline.stages()) {
    if (!stage.model) continue;
    const ParameterStore& store = stage.model->parameters();
    const WeightVersions& versions = stage.model->versions();
    for (std::size_t e = 0; e < store.entries().size(); ++e) {
      HostTensor& copy = copies.emplace_back();
      copy.value = store.parameter(e);
      copy.m = store.first_moment(e);
      copy.v = store.second_moment(e);
      if (versions.has_shadow()) copy.shadow = versions.shadow(e);
      if (versions.has_velocity()) copy.velocity = versions.velocity(e);
      tensors.push_back({store.entries()[e].name, file_shape(store.entries()[e]), copy.value.data(), or_null(copy.m),
                         or_null(copy.v), or_null(copy.shadow), or_null(copy.velocity)});
    }
  }
  write_checkpoint(comm, file, tensors, state);
}

std::optional<std::filesystem::path> find_checkpoint(const std::string& wanted, const std::string& option,
                                                     const std::filesystem::path& folder, std::string* warning) {
  if (wanted.empty()) return std::nullopt;
  if (wanted == "latest") return latest_checkpoint(folder, warning);
  if (!std::filesystem::exists(wanted)) {
    throw InputError(option + " \"" + wanted +
                     "\": no such file; give a checkpoint (OUT/checkpoints/step_XXXXXXXX.h5) or \"latest\"");
  }
  return wanted;
}

CheckpointState open_checkpoint(const std::filesystem::path& file, const Deck& deck, std::string* notes) {
  const CheckpointState state = read_checkpoint_state(file);
  std::vector<TensorShape> model;
  for (const ParameterEntry& entry : parameter_list(model_config(deck))) model.push_back({entry.name, file_shape(entry)});
  check_same_model(file, model);
  for (const std::string& change : check_restart(read_deck(state.deck, file.string()), deck)) *notes += change + "\n";
  if (state.step > deck.run.steps) {
    throw InputError(file.string() + ": is of step " + std::to_string(state.step) + ", beyond run.steps = " +
                     std::to_string(deck.run.steps) + "; raise run.steps or resume from an earlier checkpoint");
  }
  return state;
}

void load_checkpoint(const std::filesystem::path& file, Pipeline& pipeline) {
  const std::int64_t updates = read_checkpoint_state(file).step;
  for (LocalStage& stage : pipeline.stages()) {
    if (!stage.model) continue;
    ParameterStore& store = stage.model->parameters();
    WeightVersions& versions = stage.model->versions();
    std::list<HostTensor> copies;
    std::vector<TensorTarget> targets;
    for (std::size_t e = 0; e < store.entries().size(); ++e) {
      const ParameterEntry& entry = store.entries()[e];
      HostTensor& copy = copies.emplace_back();
      copy.value.resize(entry.size);
      copy.m.resize(entry.size);
      if (store.has_second_moment(e)) copy.v.resize(entry.size);
      if (versions.has_shadow()) copy.shadow.resize(entry.size);
      if (versions.has_velocity()) copy.velocity.resize(entry.size);
      targets.push_back({entry.name, file_shape(entry), copy.value.data(), copy.m.data(), or_null(copy.v), or_null(copy.shadow),
                         or_null(copy.velocity)});
    }
    read_tensors(file, targets);
    std::size_t e = 0;
    for (const HostTensor& copy : copies) {
      store.set_parameter(e, copy.value);
      store.set_first_moment(e, copy.m);
      store.set_second_moment(e, copy.v);
      if (versions.has_shadow()) versions.set_shadow(e, copy.shadow);
      if (versions.has_velocity()) versions.set_velocity(e, copy.velocity);
      ++e;
    }
    versions.start_at(updates);
  }
}

}  // namespace minipipe::core
