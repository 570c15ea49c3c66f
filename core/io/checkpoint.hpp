#pragma once

#include <hdf5.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace minipipe::core {

// A checkpoint is one HDF5 file, written by all ranks: /model/<name> and /optimizer/<name>/{m,v} (fp32, the tensor's shape;
// asynchronous rules may add shadow and velocity), attributes of /state. Names and shapes are those of the model, not of stages
// or replicas, so that any number of either, sharing the tensors in any way, can load it. Every dataset has a 64-bit checksum
// as attribute and so has the state; both are verified at load.
inline constexpr const char* checkpoint_format = "minipipe checkpoint";
inline constexpr int checkpoint_format_version = 2;  // 1: checksums that one process had to compute

// What is stored of a tensor, a dataset each: the weights, the optimizer's first and second moments; PipeDream-2BW's weights
// one update older; PipeMare's mean change of the weights.
enum class TensorField { value, m, v, shadow, velocity };

// A rectangle of a tensor. A one-dimensional tensor is one row.
struct Rectangle {
  hsize_t row = 0;
  hsize_t column = 0;
  hsize_t rows = 1;
  hsize_t columns = 0;

  std::size_t floats() const { return static_cast<std::size_t>(rows * columns); }
  friend bool operator==(const Rectangle&, const Rectangle&) = default;
};

// A part of one dataset. Its values are contiguous in host memory, row by row.
struct TensorPart {
  std::string name;
  TensorField field = TensorField::value;
  std::vector<hsize_t> shape;  // of the whole tensor; one or two extents
  Rectangle rectangle;
};

// The part that is the whole tensor.
TensorPart whole_tensor(const std::string& name, TensorField field, const std::vector<hsize_t>& shape);

struct TensorShape {
  std::string name;
  std::vector<hsize_t> shape;
};

struct CheckpointState {
  std::int64_t step = 0;          // updates done
  std::int64_t microbatches = 0;  // microbatches done
  std::int64_t tokens = 0;        // trained on
  std::uint64_t seed = 0;
  int stages = 1;        // of the run that wrote it; a reader may have another number
  std::string schedule;  // schedule.name
  std::string deck;      // the resolved deck
  std::string git_hash;
  double elapsed_s = 0;  // of training, over all resumes
};

// "FOLDER/step_00000040.h5"
std::filesystem::path checkpoint_path(const std::filesystem::path& folder, std::int64_t step);

// Copies part number `part` of the list given to `values`, which has room for it.
using CopyPart = std::function<void(std::size_t part, float* values)>;
// Takes the values of part number `part` of the list given.
using TakePart = std::function<void(std::size_t part, const float* values)>;

// Collective over `comm`: each rank gives the parts it owns, perhaps none; together they have to cover each dataset exactly
// once, and each tensor needs its value. A part without elements only names a dataset that has to be there. `copy` is called
// once for each other part, in the order of datasets' names, and its memory is used again: a rank holds no more on the host
// than its largest part. Rank 0's state is written. The folder must exist. The file appears under its name when it is whole and
// on the device. If anything fails on any rank, every rank throws RunError with the same text (path or dataset, and reason),
// the temporary file is removed and an earlier file of that name is untouched.
void write_checkpoint(MPI_Comm comm, const std::filesystem::path& path, const std::vector<TensorPart>& mine,
                      const CopyPart& copy, const CheckpointState& state);

// The readers below are not collective: each process opens the file alone. They throw InputError that says which of these it
// is: no such file, not HDF5, damaged, not a minipipe checkpoint, another format version, another model.
CheckpointState read_checkpoint_state(const std::filesystem::path& path);

// Reads parts and gives each to `take` once, dataset by dataset, when all of its dataset is verified: the dataset streams
// through a buffer of a few MiB, so that a process holds no more on the host than that and its parts of one dataset. The file
// may hold more tensors than asked for. Lists every tensor that is missing or has another shape. RunError if a part does not
// lie in its tensor.
void read_parts(const std::filesystem::path& path, const std::vector<TensorPart>& wanted, const TakePart& take);

// Compares the file with the whole model (all stages): lists every missing name, every extra name, every other shape.
void check_same_model(const std::filesystem::path& path, const std::vector<TensorShape>& model);

// The checkpoint with the largest step in the folder that opens as whole; broken ones are skipped and described in `warning`
// (if given; a line each). Nothing if there is none. Tensor contents are verified when they are read, not here.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& folder, std::string* warning = nullptr);

// The files in the folder that have the names of checkpoints of updates after `step`, whole or not.
std::vector<std::filesystem::path> checkpoints_beyond(const std::filesystem::path& folder, std::int64_t step);

// Deletes all but the `keep` checkpoints with the largest steps, and temporary files that killed runs left. One rank only.
// keep < 1 deletes no checkpoint.
void keep_last(const std::filesystem::path& folder, int keep);

}  // namespace minipipe::core
