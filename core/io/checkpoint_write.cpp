// Writing: all ranks, parallel HDF5. Reading is in checkpoint_read.cpp.
#include <mpi.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <system_error>

#include "core/io/checkpoint.hpp"
#include "core/io/checkpoint_cover.hpp"
#include "core/io/checkpoint_format.hpp"
#include "core/io/checkpoint_ranks.hpp"
#include "core/io/durable.hpp"
#include "core/io/hdf5.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

namespace fs = std::filesystem;
using checkpoint::Dataset;
using checkpoint::Ranks;
using hdf5::Handle;

// Attributes are metadata, which every rank has to write alike: all take rank 0's state.
CheckpointState broadcast(const Ranks& ranks, CheckpointState state) {
  const auto take = [&ranks](auto& number, MPI_Datatype type) {
    checkpoint::require_sent(MPI_Bcast(&number, 1, type, 0, ranks.comm()), "sharing a checkpoint's state");
  };
  take(state.step, MPI_INT64_T);
  take(state.microbatches, MPI_INT64_T);
  take(state.tokens, MPI_INT64_T);
  take(state.seed, MPI_UINT64_T);
  take(state.stages, MPI_INT);
  take(state.elapsed_s, MPI_DOUBLE);
  state.schedule = ranks.broadcast(state.schedule);
  state.deck = ranks.broadcast(state.deck);
  state.git_hash = ranks.broadcast(state.git_hash);
  return state;
}

hdf5::File create_together(const Ranks& ranks, const fs::path& path) {
  hdf5::silence();
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_mpio(access.get(), ranks.comm(), MPI_INFO_NULL);
  const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get());
  if (id < 0) hdf5::fail(path, "cannot create");
  return {path, id};
}

// Creates one dataset (all ranks) and returns it.
Handle create_dataset(const hdf5::File& file, const Dataset& dataset) {
  const Handle space(H5Screate_simple(static_cast<int>(dataset.shape.size()), dataset.shape.data(), nullptr), H5Sclose);
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.get(), 1);
  const Handle layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_fill_time(layout.get(), H5D_FILL_TIME_NEVER);  // every byte is written below
  Handle handle(
      H5Dcreate2(file.id(), dataset.name.c_str(), H5T_IEEE_F32LE, space.get(), links.get(), layout.get(), H5P_DEFAULT),
      H5Dclose);
  if (!handle) hdf5::fail(file.path(), "cannot make dataset " + dataset.name);
  return handle;
}

// One rank alone: others may have more parts of the dataset, or none.
void write_part(const hdf5::File& file, const Dataset& dataset, const Handle& handle, const Rectangle& rectangle,
                const float* values) {
  const hsize_t count = rectangle.floats();
  const Handle memory(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const Handle space(H5Dget_space(handle.get()), H5Sclose);
  if (checkpoint::select(space.get(), dataset.shape, rectangle) < 0 ||
      H5Dwrite(handle.get(), H5T_NATIVE_FLOAT, memory.get(), space.get(), H5P_DEFAULT, values) < 0) {
    hdf5::fail(file.path(), "cannot write dataset " + dataset.name);
  }
}

// Bytes of the file: values, and for each dataset its object header, its attribute, its groups' nodes.
std::uint64_t file_bytes(const std::vector<Dataset>& datasets) {
  std::uint64_t bytes = std::uint64_t{1} << 20;
  for (const Dataset& dataset : datasets) bytes += 4096 + hdf5::File::element_count(dataset.shape) * sizeof(float);
  return bytes;
}

// This rank's parts: by dataset their numbers, and one buffer for each of them in turn.
class Mine {
 public:
  Mine(const std::vector<TensorPart>& parts, const CopyPart& copy) : parts_(parts), copy_(copy) {
    std::size_t largest = 0;
    for (std::size_t number = 0; number < parts.size(); ++number) {
      if (parts[number].rectangle.floats() == 0) continue;
      numbers_[checkpoint::dataset_name(parts[number].name, parts[number].field)].push_back(number);
      largest = std::max(largest, parts[number].rectangle.floats());
    }
    buffer_.resize(largest);
  }

  // work(rectangle, values) for each part of the dataset.
  template <typename Work>
  void for_each(const std::string& dataset, const Work& work) {
    const auto found = numbers_.find(dataset);
    if (found == numbers_.end()) return;
    for (const std::size_t number : found->second) {
      copy_(number, buffer_.data());
      work(parts_[number].rectangle, buffer_.data());
    }
  }

 private:
  const std::vector<TensorPart>& parts_;
  const CopyPart& copy_;
  std::map<std::string, std::vector<std::size_t>> numbers_;
  std::vector<float> buffer_;
};

// Creation is collective and must go on the same on all ranks, so that a failed write here waits until the file is closed.
void write_file(const Ranks& ranks, const fs::path& path, const std::vector<Dataset>& datasets, Mine& mine,
                const CheckpointState& state) {
  hdf5::File file = create_together(ranks, path);
  std::string first_error;
  const auto attempt = [&first_error](const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& error) {
      if (first_error.empty()) first_error = error.what();
    }
  };
  attempt([&] { checkpoint::set_state(file, state, datasets.size()); });
  std::vector<std::uint64_t> sums(datasets.size());
  for (std::size_t d = 0; d < datasets.size(); ++d) {
    attempt([&] {
      const Handle handle = create_dataset(file, datasets[d]);
      if (!first_error.empty()) return;
      mine.for_each(datasets[d].name, [&](const Rectangle& rectangle, const float* values) {
        sums[d] += checkpoint::checksum_share(values, rectangle, checkpoint::columns_of(datasets[d].shape));
        write_part(file, datasets[d], handle, rectangle, values);
      });
    });
  }
  // Checksums are known when all parts have been seen, which happens once: a part may be slow to copy.
  checkpoint::require_sent(
      MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()), MPI_UINT64_T, MPI_SUM, ranks.comm()),
      "adding up a checkpoint's checksums");
  for (std::size_t d = 0; d < datasets.size(); ++d) {
    attempt([&] { file.set<std::uint64_t>(datasets[d].name, checkpoint::checksum_key, sums[d]); });
  }
  attempt([&file] { file.close(); });
  if (!first_error.empty()) throw RunError(first_error);
}

}  // namespace

void write_checkpoint(MPI_Comm comm, const fs::path& path, const std::vector<TensorPart>& mine, const CopyPart& copy,
                      const CheckpointState& state) {
  const Ranks ranks(comm);
  const fs::path temporary = temporary_name(path);
  const std::vector<Dataset> datasets = checkpoint::agree_on_datasets(ranks, mine);
  std::optional<Mine> parts;
  ranks.together([&] {
    parts.emplace(mine, copy);
    // Told by one rank before the collective open, whose errors MPI libraries report less clearly.
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (ranks.rank() == 0 && !fs::is_directory(folder)) {
      throw RunError(path.string() + ": no such folder: " + folder.string());
    }
  });
  const CheckpointState shared = broadcast(ranks, state);
  try {
    ranks.together([&] {
      if (ranks.rank() == 0) reserve(temporary, file_bytes(datasets));
    });
    ranks.together([&] { write_file(ranks, temporary, datasets, *parts, shared); });
    // Each node holds a part of the file in its own cache.
    ranks.together([&] { sync_file(temporary); });
    ranks.together([&] {
      if (ranks.rank() == 0) publish(temporary, path);
    });
  } catch (const RunError&) {
    std::error_code ignored;
    if (ranks.rank() == 0) fs::remove(temporary, ignored);
    throw;
  }
}

}  // namespace minipipe::core
