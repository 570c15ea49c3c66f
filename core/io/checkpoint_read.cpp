// Reading: each process alone. Writing is in checkpoint_write.cpp.
#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <utility>

#include "core/io/checkpoint.hpp"
#include "core/io/checkpoint_format.hpp"
#include "core/io/hdf5.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

namespace fs = std::filesystem;
using checkpoint::shape_text;
using Shape = std::vector<hsize_t>;

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

// The dataset's rows in order, a slab of about 4 MiB at a time: work(rectangle, values).
template <typename Work>
void for_each_slab(const hdf5::File& file, const std::string& dataset, const Shape& shape, const Work& work) {
  constexpr hsize_t slab_floats = hsize_t{1} << 20;
  const hsize_t rows = checkpoint::rows_of(shape);
  const hsize_t columns = checkpoint::columns_of(shape);
  const hsize_t step = std::max<hsize_t>(1, slab_floats / std::max<hsize_t>(1, columns));
  const hdf5::Handle source = file.open_dataset(dataset);
  const hdf5::Handle space(H5Dget_space(source.get()), H5Sclose);
  std::vector<float> values;
  for (hsize_t row = 0; row < rows; row += step) {
    const Rectangle slab{row, 0, std::min(step, rows - row), columns};
    values.resize(slab.floats());
    const hsize_t count = values.size();
    const hdf5::Handle memory(H5Screate_simple(1, &count, nullptr), H5Sclose);
    if (checkpoint::select(space.get(), shape, slab) < 0 ||
        H5Dread(source.get(), H5T_NATIVE_FLOAT, memory.get(), space.get(), H5P_DEFAULT, values.data()) < 0) {
      hdf5::fail(file.path(), "cannot read dataset " + dataset);
    }
    work(slab, values.data());
  }
}

// What a slab of whole rows has of a part.
void copy_rows(const Rectangle& slab, const float* values, const Rectangle& part, std::vector<float>& to) {
  const hsize_t begin = std::max(slab.row, part.row);
  const hsize_t end = std::min(slab.row + slab.rows, part.row + part.rows);
  for (hsize_t row = begin; row < end; ++row) {
    std::copy_n(values + (row - slab.row) * slab.columns + part.column, part.columns,
                to.begin() + static_cast<std::ptrdiff_t>((row - part.row) * part.columns));
  }
}

void read_dataset(const hdf5::File& file, const std::string& dataset, const std::vector<TensorPart>& all,
                  const std::vector<std::size_t>& numbers, const TakePart& take) {
  const Shape& shape = all[numbers.front()].shape;
  if (file.shape(dataset) != shape) {
    throw InputError(file.path().string() + ": damaged: " + dataset + " has another shape than its tensor");
  }
  std::vector<std::vector<float>> values;
  for (const std::size_t number : numbers) values.emplace_back(all[number].rectangle.floats());
  std::uint64_t sum = 0;
  for_each_slab(file, dataset, shape, [&](const Rectangle& slab, const float* rows) {
    sum += checkpoint::checksum_share(rows, slab, slab.columns);
    for (std::size_t i = 0; i < numbers.size(); ++i) copy_rows(slab, rows, all[numbers[i]].rectangle, values[i]);
  });
  if (file.get<std::uint64_t>(dataset, checkpoint::checksum_key) != sum) {
    throw InputError(file.path().string() + ": damaged: the checksum of " + dataset + " is wrong; use an earlier checkpoint");
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) take(numbers[i], values[i].data());
}

}  // namespace

CheckpointState read_checkpoint_state(const fs::path& path) { return reading(path, state_of); }

void read_parts(const fs::path& path, const std::vector<TensorPart>& wanted, const TakePart& take) {
  std::map<std::string, std::vector<std::size_t>> datasets;  // numbers of their parts
  std::vector<TensorShape> tensors;
  std::set<std::pair<std::string, Shape>> seen;
  for (std::size_t number = 0; number < wanted.size(); ++number) {
    const TensorPart& part = wanted[number];
    checkpoint::require_valid(part);
    datasets[checkpoint::dataset_name(part.name, part.field)].push_back(number);
    if (seen.emplace(part.name, part.shape).second) tensors.push_back({part.name, part.shape});
  }
  // Errors of `take` are not the file's and pass as they are.
  std::exception_ptr theirs;
  const auto guarded = [&](std::size_t number, const float* values) {
    try {
      if (!theirs) take(number, values);
    } catch (...) {
      theirs = std::current_exception();
    }
  };
  reading(path, [&](const hdf5::File& file) {
    state_of(file);
    require_same(file, tensors, false);
    for (const auto& [dataset, numbers] : datasets) {
      if (file.has(dataset)) continue;
      throw InputError(file.path().string() + ": has no " + dataset +
                       ": it was written with another optimizer, or without its state");
    }
    for (const auto& [dataset, numbers] : datasets) {
      if (!theirs) read_dataset(file, dataset, wanted, numbers, guarded);
    }
  });
  if (theirs) std::rethrow_exception(theirs);
}

void check_same_model(const fs::path& path, const std::vector<TensorShape>& model) {
  reading(path, [&model](const hdf5::File& file) {
    state_of(file);
    require_same(file, model, true);
  });
}

}  // namespace minipipe::core
