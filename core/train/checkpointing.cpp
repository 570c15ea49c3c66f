#include "core/train/checkpointing.hpp"

#include <list>

#include "core/deck/parse.hpp"
#include "core/deck/restart.hpp"
#include "core/train/options.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

struct HostTensor {
  std::vector<float> value, m, v;
};

std::vector<hsize_t> file_shape(const ParameterEntry& entry) { return {entry.shape.begin(), entry.shape.end()}; }

}  // namespace

void save_checkpoint(MPI_Comm comm, const std::filesystem::path& file, Pipeline& pipeline, const CheckpointState& state) {
  std::list<HostTensor> copies;
  std::vector<TensorRef> tensors;
  for (LocalStage& stage : pipeline.stages()) {
    if (!stage.model) continue;
    const ParameterStore& store = stage.model->parameters();
    for (std::size_t e = 0; e < store.entries().size(); ++e) {
      const auto& copy = copies.emplace_back(HostTensor{store.parameter(e), store.first_moment(e), store.second_moment(e)});
      tensors.push_back(
          {store.entries()[e].name, file_shape(store.entries()[e]), copy.value.data(), copy.m.data(), copy.v.data()});
    }
  }
  write_checkpoint(comm, file, tensors, state);
}

std::optional<std::filesystem::path> find_checkpoint(const std::string& resume, const std::filesystem::path& folder,
                                                     std::string* warning) {
  if (resume.empty()) return std::nullopt;
  if (resume == "latest") {
    auto found = latest_checkpoint(folder, warning);
    if (!found)
      *warning += "run.resume = \"latest\": no checkpoint in " + folder.string() + ", the run starts from the beginning\n";
    return found;
  }
  if (!std::filesystem::exists(resume)) {
    throw InputError("run.resume = \"" + resume +
                     "\": no such file; give a checkpoint (OUT/checkpoints/step_XXXXXXXX.h5), \"latest\" or \"\"");
  }
  return resume;
}

CheckpointState open_checkpoint(const std::filesystem::path& file, const Deck& deck, int stages, std::string* notes) {
  (void)stages;
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
  for (LocalStage& stage : pipeline.stages()) {
    if (!stage.model) continue;
    ParameterStore& store = stage.model->parameters();
    std::list<HostTensor> copies;
    std::vector<TensorTarget> targets;
    for (const ParameterEntry& entry : store.entries()) {
      auto& copy = copies.emplace_back(
          HostTensor{std::vector<float>(entry.size), std::vector<float>(entry.size), std::vector<float>(entry.size)});
      targets.push_back({entry.name, file_shape(entry), copy.value.data(), copy.m.data(), copy.v.data()});
    }
    read_tensors(file, targets);
    std::size_t e = 0;
    for (const HostTensor& copy : copies) {
      store.set_parameter(e, copy.value);
      store.set_first_moment(e, copy.m);
      store.set_second_moment(e, copy.v);
      ++e;
    }
  }
}

}  // namespace minipipe::core
