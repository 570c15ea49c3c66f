#pragma once

#include <hdf5.h>
#include <mpi.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace minipipe::core {

// A checkpoint is one HDF5 file, written by all ranks: /model/<name> and /optimizer/<name>/{m,v} (fp32, the tensor's shape;
// asynchronous rules may add shadow and velocity), attributes of /state. Names are those of the model, not of stages, so any
// number of stages can load it. Every dataset has a 64-bit checksum as attribute and so has the state; both are verified at
// load.
inline constexpr const char* checkpoint_format = "minipipe checkpoint";
inline constexpr int checkpoint_format_version = 1;

// A tensor to write: contiguous host memory, not owned. The others (the optimizer's
// moments m and v, and so on; same shape) may be null.
struct TensorRef {
  std::string name;
  std::vector<hsize_t> shape;
  const float* value = nullptr;
  const float* m = nullptr;
  const float* v = nullptr;
  const float* shadow = nullptr;    // PipeDream-2BW: the weights one update older
  const float* velocity = nullptr;  // PipeMare: the mean change of the weights
};

// Where to read a tensor to: the same, to be written. What is null is not read.
struct TensorTarget {
  std::string name;
  std::vector<hsize_t> shape;
  float* value = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  float* shadow = nullptr;
  float* velocity = nullptr;
};

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

// Collective over `comm`: each rank gives the tensors it owns, each name belongs to one rank; rank 0's state is written.
// The folder must exist. The file appears under its name when it is whole and on the device. If anything fails on any rank,
// every rank throws RunError with the same text (path and reason), the temporary file is removed and an earlier file of that
// name is untouched.
void write_checkpoint(MPI_Comm comm, const std::filesystem::path& path, const std::vector<TensorRef>& mine,
                      const CheckpointState& state);

// The readers below are not collective: each process opens the file alone. They throw InputError that says which of these it
// is: no such file, not HDF5, damaged, not a minipipe checkpoint, another format version, another model.
CheckpointState read_checkpoint_state(const std::filesystem::path& path);

// Names and shapes of the model in the file, by name.
std::vector<TensorShape> checkpoint_tensors(const std::filesystem::path& path);

// Fills the targets. The file may hold more tensors than asked for. Lists every target that is missing or has another shape.
void read_tensors(const std::filesystem::path& path, const std::vector<TensorTarget>& targets);

// Compares the file with the whole model (all stages): lists every missing name, every extra name, every other shape.
void check_same_model(const std::filesystem::path& path, const std::vector<TensorShape>& model);

// The checkpoint with the largest step in the folder that opens as whole; broken ones are skipped and described in `warning`
// (if given; a line each). Nothing if there is none. Tensor contents are verified when they are read, not here.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& folder, std::string* warning = nullptr);

// Deletes all but the `keep` checkpoints with the largest steps, and temporary files that killed runs left. One rank only.
// keep < 1 deletes no checkpoint.
void keep_last(const std::filesystem::path& folder, int keep);

}  // namespace minipipe::core
