// Writing: all ranks, parallel HDF5. Reading is in checkpoint_read.cpp.
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <system_error>

#include "core/io/checkpoint.hpp"
#include "core/io/checkpoint_format.hpp"
#include "core/io/durable.hpp"
#include "core/io/hdf5.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

namespace fs = std::filesystem;
using hdf5::Handle;

// What every rank has to know of a dataset to take part in creating it.
struct Entry {
  std::string dataset;  // full name in the file
  std::vector<hsize_t> shape;
  std::uint64_t checksum = 0;
  int owner = 0;
};

struct Mine {
  Entry entry;
  const float* values = nullptr;
};

class Ranks {
 public:
  explicit Ranks(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &size_);
  }
  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm comm() const { return comm_; }

  // Runs `work` here; afterwards all ranks return, or all throw the text of the lowest rank on which it failed.
  void together(const std::function<void()>& work) const {
    std::string text;
    try {
      work();
    } catch (const std::exception& error) {
      text = error.what();
    }
    int failed = text.empty() ? size_ : rank_;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MIN, comm_);
    if (failed == size_) return;
    int length = static_cast<int>(text.size());
    MPI_Bcast(&length, 1, MPI_INT, failed, comm_);
    text.resize(static_cast<std::size_t>(length));
    MPI_Bcast(text.data(), length, MPI_CHAR, failed, comm_);
    throw RunError("checkpoint not written (rank " + std::to_string(failed) + "): " + text);
  }

  // The texts of all ranks, in rank order.
  std::vector<std::string> gather(const std::string& text) const {
    const int length = static_cast<int>(text.size());
    std::vector<int> lengths(static_cast<std::size_t>(size_));
    MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm_);
    std::vector<int> offsets(lengths.size());
    int total = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      offsets[i] = total;
      total += lengths[i];
    }
    std::string all(static_cast<std::size_t>(total), '\0');
    MPI_Allgatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(), MPI_CHAR, comm_);
    std::vector<std::string> result;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      result.push_back(all.substr(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(lengths[i])));
    }
    return result;
  }

 private:
  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
};

// Entries as bytes between ranks of one program: numbers as they lie in memory, strings with their length in front.
void pack(std::string& bytes, std::uint64_t number) { bytes.append(reinterpret_cast<const char*>(&number), sizeof number); }

std::uint64_t unpack(const std::string& bytes, std::size_t& position) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data() + position, sizeof number);
  position += sizeof number;
  return number;
}

std::string pack(const std::vector<Mine>& mine) {
  std::string bytes;
  for (const auto& [entry, values] : mine) {
    pack(bytes, entry.dataset.size());
    bytes += entry.dataset;
    pack(bytes, entry.shape.size());
    for (const hsize_t extent : entry.shape) pack(bytes, extent);
    pack(bytes, entry.checksum);
  }
  return bytes;
}

std::vector<Entry> unpack(const std::string& bytes, int owner) {
  std::vector<Entry> entries;
  for (std::size_t position = 0; position < bytes.size();) {
    Entry entry;
    const std::uint64_t length = unpack(bytes, position);
    entry.dataset = bytes.substr(position, length);
    position += length;
    entry.shape.resize(unpack(bytes, position));
    for (hsize_t& extent : entry.shape) extent = unpack(bytes, position);
    entry.checksum = unpack(bytes, position);
    entry.owner = owner;
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<Mine> datasets_of(const std::vector<TensorRef>& tensors) {
  std::vector<Mine> result;
  const auto add = [&result](std::string dataset, const TensorRef& tensor, const float* values) {
    if (values == nullptr) return;
    const std::size_t bytes = hdf5::File::element_count(tensor.shape) * sizeof(float);
    result.push_back({{std::move(dataset), tensor.shape, checkpoint::checksum(values, bytes), 0}, values});
  };
  for (const TensorRef& tensor : tensors) {
    if (tensor.name.empty() || tensor.name.find('/') != std::string::npos || tensor.value == nullptr) {
      throw RunError("tensor '" + tensor.name + "' has no values, or no name that can be a dataset's");
    }
    add(checkpoint::model_name(tensor.name), tensor, tensor.value);
    add(checkpoint::moment_name(tensor.name, "m"), tensor, tensor.m);
    add(checkpoint::moment_name(tensor.name, "v"), tensor, tensor.v);
    add(checkpoint::moment_name(tensor.name, "shadow"), tensor, tensor.shadow);
    add(checkpoint::moment_name(tensor.name, "velocity"), tensor, tensor.velocity);
  }
  return result;
}

// All ranks' entries in one order, by name, the same on every rank.
std::vector<Entry> agree_on_entries(const Ranks& ranks, const std::vector<Mine>& mine) {
  std::vector<Entry> all;
  const std::vector<std::string> texts = ranks.gather(pack(mine));
  for (int rank = 0; rank < ranks.size(); ++rank) {
    for (Entry& entry : unpack(texts[static_cast<std::size_t>(rank)], rank)) all.push_back(std::move(entry));
  }
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return a.dataset < b.dataset; });
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].dataset == all[i - 1].dataset) {
      throw RunError(all[i].dataset + " is given by rank " + std::to_string(all[i - 1].owner) + " and by rank " +
                     std::to_string(all[i].owner));
    }
  }
  return all;
}

std::string broadcast(const Ranks& ranks, std::string text) {
  int length = static_cast<int>(text.size());
  MPI_Bcast(&length, 1, MPI_INT, 0, ranks.comm());
  text.resize(static_cast<std::size_t>(length));
  MPI_Bcast(text.data(), length, MPI_CHAR, 0, ranks.comm());
  return text;
}

// Attributes are metadata, which every rank has to write alike: all take rank 0's state.
CheckpointState broadcast(const Ranks& ranks, CheckpointState state) {
  MPI_Bcast(&state.step, 1, MPI_INT64_T, 0, ranks.comm());
  MPI_Bcast(&state.microbatches, 1, MPI_INT64_T, 0, ranks.comm());
  MPI_Bcast(&state.tokens, 1, MPI_INT64_T, 0, ranks.comm());
  MPI_Bcast(&state.seed, 1, MPI_UINT64_T, 0, ranks.comm());
  MPI_Bcast(&state.stages, 1, MPI_INT, 0, ranks.comm());
  MPI_Bcast(&state.elapsed_s, 1, MPI_DOUBLE, 0, ranks.comm());
  state.schedule = broadcast(ranks, state.schedule);
  state.deck = broadcast(ranks, state.deck);
  state.git_hash = broadcast(ranks, state.git_hash);
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
Handle create_dataset(const hdf5::File& file, const Entry& entry) {
  const Handle space(entry.shape.empty() ? H5Screate(H5S_SCALAR)
                                         : H5Screate_simple(static_cast<int>(entry.shape.size()), entry.shape.data(), nullptr),
                     H5Sclose);
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.get(), 1);
  const Handle layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_fill_time(layout.get(), H5D_FILL_TIME_NEVER);  // every byte is written below
  Handle dataset(
      H5Dcreate2(file.id(), entry.dataset.c_str(), H5T_IEEE_F32LE, space.get(), links.get(), layout.get(), H5P_DEFAULT),
      H5Dclose);
  if (!dataset) hdf5::fail(file.path(), "cannot make dataset " + entry.dataset);
  file.set<std::uint64_t>(entry.dataset, checkpoint::checksum_key, entry.checksum);
  return dataset;
}

void write_values(const hdf5::File& file, const Entry& entry, const Handle& dataset, const float* values) {
  if (H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
    hdf5::fail(file.path(), "cannot write dataset " + entry.dataset);
  }
}

// Bytes of the file: values, and for each dataset its object header, its attribute, its groups' nodes.
std::uint64_t file_bytes(const std::vector<Entry>& entries) {
  std::uint64_t bytes = std::uint64_t{1} << 20;
  for (const Entry& entry : entries) bytes += 4096 + hdf5::File::element_count(entry.shape) * sizeof(float);
  return bytes;
}

// Creation is collective and must go on the same on all ranks, so that a failed write here waits until the file is closed.
void write_file(const Ranks& ranks, const fs::path& path, const std::vector<Entry>& entries, const std::vector<Mine>& mine,
                const CheckpointState& state) {
  std::map<std::string, const float*> values;
  for (const Mine& own : mine) values[own.entry.dataset] = own.values;
  hdf5::File file = create_together(ranks, path);
  std::string first_error;
  const auto attempt = [&first_error](const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& error) {
      if (first_error.empty()) first_error = error.what();
    }
  };
  attempt([&] { checkpoint::set_state(file, state, entries.size()); });
  for (const Entry& entry : entries) {
    attempt([&] {
      const Handle dataset = create_dataset(file, entry);
      if (entry.owner == ranks.rank()) write_values(file, entry, dataset, values.at(entry.dataset));
    });
  }
  attempt([&file] { file.close(); });
  if (!first_error.empty()) throw RunError(first_error);
}

}  // namespace

void write_checkpoint(MPI_Comm comm, const fs::path& path, const std::vector<TensorRef>& mine, const CheckpointState& state) {
  const Ranks ranks(comm);
  const fs::path temporary = temporary_name(path);
  std::vector<Mine> datasets;
  ranks.together([&] {
    datasets = datasets_of(mine);
    // Told by one rank before the collective open, whose errors MPI libraries report less clearly.
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (ranks.rank() == 0 && !fs::is_directory(folder)) {
      throw RunError(path.string() + ": no such folder: " + folder.string());
    }
  });
  const CheckpointState shared = broadcast(ranks, state);
  try {
    std::vector<Entry> entries;
    ranks.together([&] {
      entries = agree_on_entries(ranks, datasets);
      if (ranks.rank() == 0) reserve(temporary, file_bytes(entries));
    });
    ranks.together([&] { write_file(ranks, temporary, entries, datasets, shared); });
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
