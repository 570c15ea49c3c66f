// Reading: each process alone. Writing is in checkpoint_write.cpp.
#include <algorithm>
#include <map>

#include "core/io/checkpoint.hpp"
#include "core/io/checkpoint_format.hpp"
#include "core/io/hdf5.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

namespace fs = std::filesystem;
using Shape = std::vector<hsize_t>;

std::string shape_text(const Shape& shape) {
  std::string text("[");
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text += "]";
}

hdf5::File open(const fs::path& path) {
  hdf5::silence();
  std::error_code error;
  if (!fs::exists(path, error)) throw InputError(path.string() + ": no such checkpoint");
  if (H5Fis_hdf5(path.c_str()) == 0) throw InputError(path.string() + ": not an HDF5 file, or damaged at its beginning");
  return hdf5::File::open(path, false);
}

// Runs `function(file)`; whatever HDF5 stumbles over is damage, because the format has been checked first.
template <typename Function>
auto reading(const fs::path& path, const Function& function) {
  try {
    const hdf5::File file = open(path);
    return function(file);
  } catch (const RunError& error) {
    throw InputError(std::string(error.what()) + "; the checkpoint is damaged, use an earlier one");
  }
}

std::size_t count_datasets(const hdf5::File& file) {
  std::size_t count = file.names("/model").size();
  for (const std::string& name : file.names("/optimizer")) count += file.names("/optimizer/" + name).size();
  return count;
}

CheckpointState state_of(const hdf5::File& file) {
  std::size_t written = 0;
  CheckpointState state = checkpoint::get_state(file, &written);
  const std::size_t found = count_datasets(file);
  if (found != written) {
    throw InputError(file.path().string() + ": damaged: " + std::to_string(written) + " datasets were written, " +
                     std::to_string(found) + " are there; use an earlier checkpoint");
  }
  return state;
}

std::vector<TensorShape> tensors_of(const hdf5::File& file) {
  std::vector<TensorShape> result;
  for (const std::string& name : file.names("/model")) result.push_back({name, file.shape(checkpoint::model_name(name))});
  return result;
}

// Every difference, a line each; empty if there is none. `whole`: names in the file that the model lacks count, too.
std::string differences(const std::vector<TensorShape>& stored, const std::vector<TensorShape>& model, bool whole) {
  std::map<std::string, Shape> in_file;
  for (const TensorShape& tensor : stored) in_file[tensor.name] = tensor.shape;
  std::string text;
  for (const TensorShape& tensor : model) {
    const auto found = in_file.find(tensor.name);
    if (found == in_file.end()) {
      text += "\n  missing in the file: " + tensor.name + " " + shape_text(tensor.shape);
      continue;
    }
    if (found->second != tensor.shape) {
      text += "\n  another shape: " + tensor.name + " is " + shape_text(found->second) + " in the file, " +
              shape_text(tensor.shape) + " in the model";
    }
    in_file.erase(found);
  }
  if (whole) {
    for (const auto& [name, shape] : in_file) text += "\n  only in the file: " + name + " " + shape_text(shape);
  }
  return text;
}

void require_same(const hdf5::File& file, const std::vector<TensorShape>& model, bool whole) {
  const std::string text = differences(tensors_of(file), model, whole);
  if (text.empty()) return;
  throw InputError(file.path().string() + ": holds another model than the deck describes (see [model]):" + text);
}

void read_dataset(const hdf5::File& file, const std::string& dataset, const Shape& shape, float* values) {
  if (values == nullptr) return;
  if (!file.has(dataset)) {
    throw InputError(file.path().string() + ": has no " + dataset +
                     ": it was written with another optimizer, or without its state");
  }
  if (file.shape(dataset) != shape)
    throw InputError(file.path().string() + ": damaged: " + dataset + " has another shape than its tensor");
  file.read_raw(dataset, H5T_NATIVE_FLOAT, values);
  const std::size_t bytes = hdf5::File::element_count(shape) * sizeof(float);
  if (file.get<std::uint64_t>(dataset, checkpoint::checksum_key) != checkpoint::checksum(values, bytes)) {
    throw InputError(file.path().string() + ": damaged: the checksum of " + dataset + " is wrong; use an earlier checkpoint");
  }
}

}  // namespace

CheckpointState read_checkpoint_state(const fs::path& path) { return reading(path, state_of); }

std::vector<TensorShape> checkpoint_tensors(const fs::path& path) {
  return reading(path, [](const hdf5::File& file) {
    state_of(file);
    return tensors_of(file);
  });
}

void read_tensors(const fs::path& path, const std::vector<TensorTarget>& targets) {
  reading(path, [&targets](const hdf5::File& file) {
    state_of(file);
    std::vector<TensorShape> wanted;
    for (const TensorTarget& target : targets) wanted.push_back({target.name, target.shape});
    require_same(file, wanted, false);
    for (const TensorTarget& target : targets) {
      read_dataset(file, checkpoint::model_name(target.name), target.shape, target.value);
      for (const auto& [moment, values] : {std::pair("m", target.m), std::pair("v", target.v),
                                           std::pair("shadow", target.shadow), std::pair("velocity", target.velocity)}) {
        read_dataset(file, checkpoint::moment_name(target.name, moment), target.shape, values);
      }
    }
  });
}

void check_same_model(const fs::path& path, const std::vector<TensorShape>& model) {
  reading(path, [&model](const hdf5::File& file) {
    state_of(file);
    require_same(file, model, true);
  });
}

}  // namespace minipipe::core
