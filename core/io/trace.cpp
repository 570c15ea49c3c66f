#include "core/io/trace.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <system_error>
#include <utility>

#include "core/io/durable.hpp"
#include "core/io/hdf5.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

namespace fs = std::filesystem;
using hdf5::File;
using Letters = std::array<char, 8>;  // a kind in the file, padded with zeros: SEND_F is the longest
using schedules::Kind;
using schedules::LoggedAction;

// Larger files are not copied at each flush.
constexpr std::uintmax_t largest_copied = std::uintmax_t{64} << 20;

// Upper bounds of what HDF5 adds, generous.
constexpr std::uint64_t fresh_bytes = std::uint64_t{256} << 10;
constexpr std::uint64_t rank_bytes = std::uint64_t{128} << 10;

std::uint64_t attribute_bytes(const TraceAttributes& attributes) {
  std::uint64_t bytes = fresh_bytes;
  for (const auto& [key, value] : attributes) bytes += 512 + key.size() + 2 * value.size();
  return bytes;
}

std::string rank_group(int rank) { return "/ranks/" + std::to_string(rank); }
std::string actions_group(int rank) { return rank_group(rank) + "/actions/"; }

// One column of a list of records.
template <typename T, typename Record, typename Member>
std::vector<T> column(const std::vector<Record>& records, Member member) {
  std::vector<T> result;
  result.reserve(records.size());
  for (const Record& record : records) result.push_back(static_cast<T>(std::invoke(member, record)));
  return result;
}

Letters kind_letters(Kind kind) {
  Letters result{};
  const std::string_view text = schedules::letters(kind);
  std::copy_n(text.begin(), std::min(text.size(), result.size()), result.begin());
  return result;
}

Kind kind_of(const Letters& text, const fs::path& file) {
  for (int code = 0; code <= static_cast<int>(Kind::drain); ++code) {
    const auto kind = static_cast<Kind>(code);
    if (kind_letters(kind) == text) return kind;
  }
  throw InputError(file.string() + ": unknown action kind '" + std::string(text.data(), ::strnlen(text.data(), text.size())) +
                   "': the file is damaged or was written by a newer minipipe");
}

// Runs `change` on the file such that the result is whole: on a copy that then takes the file's name, if it is not too large.
// `growth`: bytes that will be added, at most.
void change_file(const fs::path& path, std::uint64_t growth, const std::function<void(const File&)>& change) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) throw RunError(path.string() + ": cannot continue the trace: " + error.message());
  if (size > largest_copied) {
    reserve(path, size + growth);
    File file = File::open(path, true);
    change(file);
    file.close();
    sync_file(path);
    return;
  }
  TemporaryFile temporary(path);
  copy_bytes(path, temporary.path());
  reserve(temporary.path(), size + growth);
  File file = File::open(temporary.path(), true);
  change(file);
  file.close();
  temporary.publish();
}

void set_attributes(const File& file, const TraceAttributes& attributes) {
  for (const auto& [key, value] : attributes) file.set("/", key, value);
}

void append_log(const File& file, int rank, const schedules::ActionLog& log) {
  const std::string group = actions_group(rank);
  const hdf5::Handle text = hdf5::string_type(Letters{}.size());
  const auto kinds = column<Letters>(log, [](const LoggedAction& entry) { return kind_letters(entry.action.kind); });
  file.append_raw(group + "kind", text.get(), kinds.data(), kinds.size());
  file.append(group + "stage", column<std::int32_t>(log, [](const LoggedAction& entry) { return entry.action.stage; }));
  file.append(group + "microbatch",
              column<std::int64_t>(log, [](const LoggedAction& entry) { return entry.action.microbatch; }));
  file.append(group + "start_s", column<double>(log, &LoggedAction::start_s));
  file.append(group + "end_s", column<double>(log, &LoggedAction::end_s));
  file.append(group + "version", column<std::int64_t>(log, &LoggedAction::version));
}

// Datasets of one table must have one length, or the rows do not belong together.
template <typename T>
void require_rows(const std::vector<T>& values, std::size_t rows, const fs::path& file, const std::string& name) {
  if (values.size() != rows) throw InputError(file.string() + ": " + name + " has another length than its neighbours: damaged");
}

schedules::ActionLog read_log(const File& file, int rank) {
  const std::string group = actions_group(rank);
  if (!file.has(group + "kind")) return {};
  std::vector<Letters> kinds(File::element_count(file.shape(group + "kind")));
  file.read_raw(group + "kind", hdf5::string_type(Letters{}.size()).get(), kinds.data());
  const auto stages = file.read<std::int32_t>(group + "stage");
  const auto microbatches = file.read<std::int64_t>(group + "microbatch");
  const auto starts = file.read<double>(group + "start_s");
  const auto ends = file.read<double>(group + "end_s");
  const auto versions = file.read<std::int64_t>(group + "version");
  require_rows(stages, kinds.size(), file.path(), group + "stage");
  require_rows(microbatches, kinds.size(), file.path(), group + "microbatch");
  require_rows(starts, kinds.size(), file.path(), group + "start_s");
  require_rows(ends, kinds.size(), file.path(), group + "end_s");
  require_rows(versions, kinds.size(), file.path(), group + "version");
  schedules::ActionLog log(kinds.size());
  for (std::size_t i = 0; i < log.size(); ++i) {
    log[i] = {{kind_of(kinds[i], file.path()), stages[i], microbatches[i]}, starts[i], ends[i], versions[i]};
  }
  return log;
}

// Ranks that have a group, ascending. Names of other forms are no ranks.
std::vector<int> recorded_ranks(const File& file) {
  std::vector<int> ranks;
  for (const std::string& name : file.names("/ranks")) {
    if (name.size() < 8 && name.find_first_not_of("0123456789") == std::string::npos) ranks.push_back(std::stoi(name));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void shrink_steps(const File& file, const std::string& group, const std::vector<const char*>& columns, std::int64_t step) {
  const auto steps = file.read<std::int64_t>(group + "step");
  const auto kept = std::find_if(steps.begin(), steps.end(), [step](std::int64_t row) { return row > step; }) - steps.begin();
  for (const char* name : columns) file.shrink(group + name, static_cast<hsize_t>(kept));
}

bool is_beyond(const schedules::Action& action, std::int64_t step, std::int64_t microbatches) {
  if (action.kind == Kind::update) return action.microbatch >= step;
  if (action.kind == Kind::drain) return action.microbatch > microbatches;
  return action.microbatch >= microbatches;
}

const std::vector<const char*> row_columns{"step", "tokens", "time_s", "loss", "lr", "grad_norm"};
const std::vector<const char*> validation_columns{"step", "loss"};
const std::vector<const char*> action_columns{"kind", "stage", "microbatch", "start_s", "end_s", "version"};

File open_for_reading(const fs::path& path) {
  if (!fs::exists(path)) throw InputError(path.string() + ": no such file");
  try {
    return File::open(path, false);
  } catch (const RunError& error) {
    throw InputError(std::string(error.what()) + " (damaged, or not a trace)");
  }
}

// What a reader meets in a file is the file's fault.
template <typename Function>
auto reading(const fs::path& path, const Function& function) {
  const File file = open_for_reading(path);
  if (!file.has("/trace")) throw InputError(path.string() + ": is not a trace; give the trace.h5 of a run");
  try {
    return function(file);
  } catch (const RunError& error) {
    throw InputError(error.what());
  }
}

}  // namespace

namespace {

void put_versions(const File& file, const VersionHistograms& versions) {
  const auto replace = [&file](const std::string& name, const std::vector<std::int64_t>& values) {
    if (file.has(name)) file.shrink(name, 0);
    file.append(name, values);
  };
  for (std::size_t stage = 0; stage < versions.gap.size(); ++stage) {
    const std::string group = "/versions/" + std::to_string(stage);
    replace(group + "/gap", versions.gap[stage]);
    replace(group + "/delay", versions.delay[stage]);
  }
  replace("/versions/skew", versions.skew);
}

}  // namespace

TraceWriter::TraceWriter(fs::path file, const TraceAttributes& attributes, bool resume) : path_(std::move(file)) {
  if (resume && fs::exists(path_)) {
    try {
      open_for_reading(path_).close();
    } catch (const InputError& error) {
      throw InputError(std::string(error.what()) + "; move it away to go on without the earlier part of the trace");
    }
    change_file(path_, attribute_bytes(attributes), [&](const File& old) { set_attributes(old, attributes); });
    return;
  }
  TemporaryFile temporary(path_);
  reserve(temporary.path(), attribute_bytes(attributes));
  File fresh = File::create(temporary.path());
  set_attributes(fresh, attributes);
  for (const char* name : {"step", "tokens"}) fresh.append<std::int64_t>(std::string("/trace/") + name, {});
  for (const char* name : {"time_s", "loss", "lr", "grad_norm"}) fresh.append<double>(std::string("/trace/") + name, {});
  fresh.append<std::int64_t>("/trace/val/step", {});
  fresh.append<double>("/trace/val/loss", {});
  fresh.close();
  temporary.publish();
}

void TraceWriter::append(const std::vector<TraceRow>& rows) { rows_.insert(rows_.end(), rows.begin(), rows.end()); }

void TraceWriter::append_validation(const ValidationRow& row) { validation_.push_back(row); }

void TraceWriter::append_actions(int rank, const schedules::ActionLog& actions) {
  auto& log = actions_[rank];
  log.insert(log.end(), actions.begin(), actions.end());
}

void TraceWriter::write_memory(int rank, const MemoryBytes& bytes) { memory_[rank] = bytes; }

void TraceWriter::flush() {
  if (rows_.empty() && validation_.empty() && actions_.empty() && memory_.empty() && !versions_) return;
  // A started chunk of each column, object headers, and the values.
  std::uint64_t growth = fresh_bytes + (rows_.size() + validation_.size()) * sizeof(TraceRow);
  for (const auto& [rank, log] : actions_) growth += rank_bytes + log.size() * 2 * sizeof(LoggedAction);
  for (const auto& [rank, categories] : memory_) growth += rank_bytes + categories.size() * 512;
  if (versions_) growth += rank_bytes * (versions_->gap.size() + 1);
  change_file(path_, growth, [this](const File& file) {
    file.append("/trace/step", column<std::int64_t>(rows_, &TraceRow::step));
    file.append("/trace/tokens", column<std::int64_t>(rows_, &TraceRow::tokens));
    file.append("/trace/time_s", column<double>(rows_, &TraceRow::time_s));
    file.append("/trace/loss", column<double>(rows_, &TraceRow::loss));
    file.append("/trace/lr", column<double>(rows_, &TraceRow::lr));
    file.append("/trace/grad_norm", column<double>(rows_, &TraceRow::grad_norm));
    file.append("/trace/val/step", column<std::int64_t>(validation_, &ValidationRow::step));
    file.append("/trace/val/loss", column<double>(validation_, &ValidationRow::loss));
    for (const auto& [rank, log] : actions_) append_log(file, rank, log);
    for (const auto& [rank, categories] : memory_) {
      const std::string group = rank_group(rank) + "/memory";
      file.make_group(group);
      for (const auto& [category, bytes] : categories) file.set<std::uint64_t>(group, category, bytes);
    }
    if (versions_) put_versions(file, *versions_);
  });
  rows_.clear();
  validation_.clear();
  actions_.clear();
  memory_.clear();
  versions_.reset();
}

void TraceWriter::truncate_to(std::int64_t step, std::int64_t microbatches) {
  change_file(path_, fresh_bytes, [&](const File& file) {
    shrink_steps(file, "/trace/", row_columns, step);
    shrink_steps(file, "/trace/val/", validation_columns, step);
    for (const int rank : recorded_ranks(file)) {
      // The pipe is empty at a checkpoint: everything before it was logged before anything beyond it.
      const schedules::ActionLog log = read_log(file, rank);
      const auto kept = std::find_if(log.begin(), log.end(),
                                     [&](const LoggedAction& entry) { return is_beyond(entry.action, step, microbatches); }) -
                        log.begin();
      if (log.empty()) continue;
      for (const char* name : action_columns) file.shrink(actions_group(rank) + name, static_cast<hsize_t>(kept));
    }
  });
}

TraceReader::TraceReader(fs::path file) : path_(std::move(file)) { open_for_reading(path_).close(); }

TraceAttributes TraceReader::attributes() const {
  return reading(path_, [](const File& file) {
    TraceAttributes result;
    for (const std::string& key : file.attribute_names("/")) result[key] = file.get_text("/", key);
    return result;
  });
}

std::vector<TraceRow> TraceReader::rows() const {
  return reading(path_, [](const File& file) {
    const auto steps = file.read<std::int64_t>("/trace/step");
    const auto tokens = file.read<std::int64_t>("/trace/tokens");
    std::array<std::vector<double>, 4> reals;
    const std::array<const char*, 4> names{"/trace/time_s", "/trace/loss", "/trace/lr", "/trace/grad_norm"};
    require_rows(tokens, steps.size(), file.path(), "/trace/tokens");
    for (std::size_t i = 0; i < names.size(); ++i) {
      reals[i] = file.read<double>(names[i]);
      require_rows(reals[i], steps.size(), file.path(), names[i]);
    }
    std::vector<TraceRow> rows(steps.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = {steps[i], tokens[i], reals[0][i], reals[1][i], reals[2][i], reals[3][i]};
    }
    return rows;
  });
}

std::vector<ValidationRow> TraceReader::validation() const {
  return reading(path_, [](const File& file) {
    const auto steps = file.read<std::int64_t>("/trace/val/step");
    const auto losses = file.read<double>("/trace/val/loss");
    require_rows(losses, steps.size(), file.path(), "/trace/val/loss");
    std::vector<ValidationRow> rows(steps.size());
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = {steps[i], losses[i]};
    return rows;
  });
}

schedules::Log TraceReader::actions() const {
  return reading(path_, [](const File& file) {
    schedules::Log log;
    for (const int rank : recorded_ranks(file)) {
      if (static_cast<int>(log.ranks.size()) <= rank) log.ranks.resize(static_cast<std::size_t>(rank) + 1);
      log.ranks[static_cast<std::size_t>(rank)] = read_log(file, rank);
    }
    return log;
  });
}

MemoryBytes TraceReader::memory(int rank) const {
  return reading(path_, [rank](const File& file) {
    MemoryBytes result;
    const std::string group = rank_group(rank) + "/memory";
    if (!file.has(group)) return result;
    for (const std::string& key : file.attribute_names(group)) result[key] = file.get<std::uint64_t>(group, key);
    return result;
  });
}

VersionHistograms TraceReader::versions() const {
  return reading(path_, [](const File& file) {
    VersionHistograms result;
    for (int stage = 0; file.has("/versions/" + std::to_string(stage)); ++stage) {
      const std::string group = "/versions/" + std::to_string(stage);
      result.gap.push_back(file.read<std::int64_t>(group + "/gap"));
      result.delay.push_back(file.read<std::int64_t>(group + "/delay"));
    }
    if (file.has("/versions/skew")) result.skew = file.read<std::int64_t>("/versions/skew");
    return result;
  });
}

}  // namespace minipipe::core
