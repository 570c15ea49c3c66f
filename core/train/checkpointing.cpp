#include "core/train/checkpointing.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/deck/parse.hpp"
#include "core/deck/restart.hpp"
#include "core/train/options.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

std::vector<hsize_t> file_shape(const ParameterEntry& entry) { return {entry.shape.begin(), entry.shape.end()}; }

// A part with the ways to and from its place.
struct Stored {
  std::function<std::vector<float>()> get;
  std::function<void(const std::vector<float>&)> set;
};

// What the local stages keep, tensor by tensor.
struct StoredParts {
  std::vector<TensorPart> parts;
  std::vector<Stored> places;

  explicit StoredParts(Pipeline& pipeline) {
    for (LocalStage& stage : pipeline.stages()) {
      if (!stage.model) continue;
      ParameterStore& store = stage.model->parameters();
      WeightVersions& versions = stage.model->versions();
      for (std::size_t e = 0; e < store.entries().size(); ++e) {
        const auto add = [&](TensorField field, Stored place) {
          parts.push_back(whole_tensor(store.entries()[e].name, field, file_shape(store.entries()[e])));
          places.push_back(std::move(place));
        };
        add(TensorField::value,
            {[&store, e] { return store.parameter(e); }, [&store, e](const auto& values) { store.set_parameter(e, values); }});
        add(TensorField::m, {[&store, e] { return store.first_moment(e); },
                             [&store, e](const auto& values) { store.set_first_moment(e, values); }});
        if (store.has_second_moment(e))
          add(TensorField::v, {[&store, e] { return store.second_moment(e); },
                               [&store, e](const auto& values) { store.set_second_moment(e, values); }});
        if (versions.has_shadow())
          add(TensorField::shadow, {[&versions, e] { return versions.shadow(e); },
                                    [&versions, e](const auto& values) { versions.set_shadow(e, values); }});
        if (versions.has_velocity())
          add(TensorField::velocity, {[&versions, e] { return versions.velocity(e); },
                                      [&versions, e](const auto& values) { versions.set_velocity(e, values); }});
      }
    }
  }
};

}  // namespace

void save_checkpoint(MPI_Comm comm, const std::filesystem::path& file, Pipeline& pipeline, const CheckpointState& state) {
  const StoredParts stored(pipeline);
  write_checkpoint(
      comm, file, stored.parts,
      [&stored](std::size_t part, float* to) {
        const std::vector<float> values = stored.places[part].get();
        std::copy(values.begin(), values.end(), to);
      },
      state);
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
  const StoredParts stored(pipeline);
  read_parts(file, stored.parts, [&stored](std::size_t part, const float* values) {
    stored.places[part].set({values, values + stored.parts[part].rectangle.floats()});
  });
  for (LocalStage& stage : pipeline.stages()) {
    if (stage.model) stage.model->versions().start_at(updates);
  }
}

}  // namespace minipipe::core
