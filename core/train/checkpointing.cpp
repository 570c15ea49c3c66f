#include "core/train/checkpointing.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/deck/parse.hpp"
#include "core/deck/restart.hpp"
#include "core/train/options.hpp"
#include "core/train/replica_options.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

std::vector<hsize_t> file_shape(const ParameterEntry& entry) { return {entry.shape.begin(), entry.shape.end()}; }

TensorField file_field(StoredField field) {
  switch (field) {
    case StoredField::value:
      return TensorField::value;
    case StoredField::first_moment:
      return TensorField::m;
    case StoredField::second_moment:
      return TensorField::v;
  }
  throw RunError("no such field of a parameter");
}

TensorPart file_part(const StoredPart& part) {
  const auto extent = [](int number) { return static_cast<hsize_t>(number); };
  return {part.name,
          file_field(part.field),
          {part.full_shape.begin(), part.full_shape.end()},
          {extent(part.row), extent(part.column), extent(part.rows), extent(part.columns)}};
}

// Parts of the file, each with the ways to and from its place in the local stages.
class LocalParts {
 public:
  // To write: what no other rank writes. To read: what the stages must be given.
  enum class Which { to_write, to_read };

  LocalParts(const std::vector<StageWeights>& stages, Which which) {
    for (const StageWeights& stage : stages) {
      const ParameterStore& store = *stage.parameters;
      for (const StoredPart& part : which == Which::to_write ? store.owned_parts() : store.all_parts()) {
        add(file_part(part), {[part](float* to) { read_piece(part.array, part.piece, to); },
                              [part](const float* from) { write_piece(part.array, part.piece, from); }});
      }
      // Weight versions go with replicas that have everything, all of them the same.
      const bool mine = which == Which::to_read || store.layout().options.replica == 0;
      if (stage.versions != nullptr && mine) add_versions(store, *stage.versions);
      if (which == Which::to_write) name_tensors(store);
    }
  }

  const std::vector<TensorPart>& parts() const { return parts_; }
  void get(std::size_t part, float* to) const { places_[part].get(to); }
  void set(std::size_t part, const float* from) const { places_[part].set(from); }

 private:
  struct Place {
    std::function<void(float*)> get;
    std::function<void(const float*)> set;
  };

  void add(TensorPart part, Place place) {
    parts_.push_back(std::move(part));
    places_.push_back(std::move(place));
  }

  void add_versions(const ParameterStore& store, WeightVersions& versions) {
    for (std::size_t e = 0; e < store.entries().size(); ++e) {
      const ParameterEntry& entry = store.entries()[e];
      if (versions.has_shadow()) {
        add(whole_tensor(entry.name, TensorField::shadow, file_shape(entry)),
            {[&versions, e](float* to) { std::ranges::copy(versions.shadow(e), to); },
             [&versions, e, size = entry.size](const float* from) {
               versions.set_shadow(e, {from, from + size});
             }});
      }
      if (versions.has_velocity()) {
        add(whole_tensor(entry.name, TensorField::velocity, file_shape(entry)),
            {[&versions, e](float* to) { std::ranges::copy(versions.velocity(e), to); },
             [&versions, e, size = entry.size](const float* from) {
               versions.set_velocity(e, {from, from + size});
             }});
      }
    }
  }

  // Every replica names the tensors of its stages, so that a part that no replica owns is an error, not a gap in the file.
  void name_tensors(const ParameterStore& store) {
    for (const ParameterEntry& entry : store.layout().full) {
      for (const TensorField field : {TensorField::value, TensorField::m}) add({entry.name, field, file_shape(entry), {}}, {});
    }
  }

  std::vector<TensorPart> parts_;
  std::vector<Place> places_;
};

}  // namespace

std::vector<StageWeights> stage_weights(Pipeline& pipeline) {
  std::vector<StageWeights> result;
  for (LocalStage& stage : pipeline.stages()) {
    if (stage.model) result.push_back({&stage.model->parameters(), &stage.model->versions()});
  }
  return result;
}

void save_checkpoint(MPI_Comm comm, const std::filesystem::path& file, const std::vector<StageWeights>& stages,
                     const CheckpointState& state) {
  const LocalParts local(stages, LocalParts::Which::to_write);
  write_checkpoint(
      comm, file, local.parts(), [&local](std::size_t part, float* to) { local.get(part, to); }, state);
}

std::optional<std::filesystem::path> find_checkpoint(const std::string& wanted, const std::string& option,
                                                     const std::filesystem::path& folder, std::string* warning) {
  if (wanted.empty()) return std::nullopt;
  if (wanted == "latest") {
    std::string skipped;
    const auto found = latest_checkpoint(folder, &skipped);
    if (!found && !skipped.empty()) {
      throw InputError(option + " \"latest\": no checkpoint in " + folder.string() + " can be read:\n" + skipped +
                       "name a whole checkpoint; to start anew, move these files away" +
                       (option.starts_with("run.resume") ? " or leave run.resume out" : ""));
    }
    *warning += skipped;
    return found;
  }
  if (!std::filesystem::exists(wanted)) {
    throw InputError(option + " \"" + wanted +
                     "\": no such file; give a checkpoint (OUT/checkpoints/step_XXXXXXXX.h5) or \"latest\"");
  }
  if (std::filesystem::is_directory(wanted)) {
    throw InputError(
        option + " \"" + wanted +
        "\": is a folder; give a checkpoint in it (OUT/checkpoints/step_XXXXXXXX.h5), or \"latest\" with its run's "
        "output.directory");
  }
  return wanted;
}

CheckpointState open_checkpoint(const std::filesystem::path& file, const Deck& deck, std::string* notes, CheckpointUse use) {
  const CheckpointState state = read_checkpoint_state(file);
  std::vector<TensorShape> model;
  for (const ParameterEntry& entry : parameter_list(model_config(deck))) model.push_back({entry.name, file_shape(entry)});
  check_same_model(file, model);
  for (const std::string& change : check_restart(read_deck(state.deck, file.string()), deck, use)) *notes += change + "\n";
  if (use == CheckpointUse::resume && average_period(deck) > 0) {
    *notes +=
        "sdp.sync = \"parameter\": every holder has moments of its own, and a checkpoint those of one: the run will differ "
        "from one "
        "that never stopped\n";
  }
  if (use == CheckpointUse::resume && deck.parallel.mode == "sdp" && deck.sdp.refresh > 1 &&
      state.step % deck.sdp.refresh != 0) {
    *notes += "sdp.refresh = " + std::to_string(deck.sdp.refresh) + ": the checkpoint of update " + std::to_string(state.step) +
              " is between refreshes, so that what is not held starts newer than it was: the run will differ from one that "
              "never stopped\n";
  }
  if (use == CheckpointUse::resume && state.step > deck.run.steps) {
    throw InputError(file.string() + ": is of step " + std::to_string(state.step) + ", beyond run.steps = " +
                     std::to_string(deck.run.steps) + "; raise run.steps or resume from an earlier checkpoint");
  }
  return state;
}

void load_checkpoint(const std::filesystem::path& file, const std::vector<StageWeights>& stages) {
  const std::int64_t updates = read_checkpoint_state(file).step;
  const LocalParts local(stages, LocalParts::Which::to_read);
  read_parts(file, local.parts(), [&local](std::size_t part, const float* from) { local.set(part, from); });
  for (const StageWeights& stage : stages) {
    if (stage.versions != nullptr) stage.versions->start_at(updates);
  }
}

}  // namespace minipipe::core
