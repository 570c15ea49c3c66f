#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "schedules/plan/plan.hpp"

namespace minipipe::core {

// One optimizer update.
struct TraceRow {
  std::int64_t step = 0;    // updates done, this one included: the first row has 1
  std::int64_t tokens = 0;  // trained on so far
  double time_s = 0;        // since the run's start, time before a resume included
  double loss = 0;          // mean over the update's microbatches, nats per token
  double lr = 0;
  double grad_norm = 0;  // NaN where it was not computed
};

struct ValidationRow {
  std::int64_t step = 0;  // updates done
  double loss = 0;
};

using TraceAttributes = std::map<std::string, std::string>;  // root attributes: deck, version, git_hash, kokkos, ranks, host
using MemoryBytes = std::map<std::string, std::uint64_t>;    // category (parameters, gradients, ...) -> bytes

// Weight versions of a run, in updates; element v counts the microbatches with value v (core/train/version_statistics.hpp).
struct VersionHistograms {
  std::vector<std::vector<std::int64_t>> gap;    // by stage
  std::vector<std::vector<std::int64_t>> delay;  // by stage
  std::vector<std::int64_t> skew;
};

// Writes trace.h5; one rank only, serial HDF5. Calls collect in memory; flush() brings all of them to the file in one go.
// The file is closed between flushes. Up to 64 MiB a flush works on a copy that then replaces the file, so trace.h5 is whole
// whenever the program dies; a larger file is appended to in place and a kill in the middle of a flush can damage it.
// The destructor does not flush. Throws RunError (disk) or InputError (the file to continue is damaged).
class TraceWriter {
 public:
  // Starts a new file, or (`resume`) continues the one that is there, if any, and renews its attributes.
  TraceWriter(std::filesystem::path file, const TraceAttributes& attributes, bool resume);

  void append(const std::vector<TraceRow>& rows);
  void append_validation(const ValidationRow& row);
  void append_actions(int rank, const schedules::ActionLog& actions);
  void write_memory(int rank, const MemoryBytes& bytes);
  // Replaces what is there: /versions/<stage>/{gap,delay}, /versions/skew.
  void write_versions(const VersionHistograms& versions) { versions_ = versions; }
  void flush();

  // After a resume at a checkpoint: drops what an earlier process wrote beyond it. Keeps rows up to `step`, computations of
  // microbatches below `microbatches`, updates below `step`. Acts on the file at once; call it before the first append.
  void truncate_to(std::int64_t step, std::int64_t microbatches);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::vector<TraceRow> rows_;
  std::vector<ValidationRow> validation_;
  std::map<int, schedules::ActionLog> actions_;
  std::map<int, MemoryBytes> memory_;
  std::optional<VersionHistograms> versions_;
};

// Reads a trace.h5 that no one is writing at this moment. Throws InputError naming file and dataset.
class TraceReader {
 public:
  explicit TraceReader(std::filesystem::path file);

  TraceAttributes attributes() const;
  std::vector<TraceRow> rows() const;
  std::vector<ValidationRow> validation() const;
  // The action logs of ranks 0 .. the highest rank recorded (empty for a rank that recorded nothing).
  schedules::Log actions() const;
  MemoryBytes memory(int rank) const;
  VersionHistograms versions() const;  // of as many stages as there are

 private:
  std::filesystem::path path_;
};

}  // namespace minipipe::core
