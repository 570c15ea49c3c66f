#include "core/io/checkpoint_format.hpp"

#include <bit>
#include <cstring>

#include "schedules/error.hpp"

namespace minipipe::core::checkpoint {

namespace {

void add(std::string& text, const std::string& value) { text.append(value).append(1, '\0'); }

std::uint64_t state_checksum(const CheckpointState& state, std::uint64_t datasets) {
  std::string text;
  for (const std::int64_t number : {state.step, state.microbatches, state.tokens, std::int64_t{state.stages}}) {
    add(text, std::to_string(number));
  }
  add(text, std::to_string(state.seed));
  add(text, std::to_string(datasets));
  add(text, std::to_string(std::bit_cast<std::uint64_t>(state.elapsed_s)));
  add(text, state.schedule);
  add(text, state.deck);
  add(text, state.git_hash);
  return checksum(text.data(), text.size());
}

}  // namespace

std::uint64_t checksum(const void* data, std::size_t bytes) {
  constexpr std::uint64_t prime = 0x100000001b3ULL;
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&hash](std::uint64_t word) {
    hash = (hash ^ word) * prime;
    hash ^= hash >> 32;
  };
  const char* next = static_cast<const char*>(data);
  std::size_t left = bytes;
  for (; left >= sizeof(std::uint64_t); left -= sizeof(std::uint64_t), next += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, next, sizeof word);
    mix(word);
  }
  std::uint64_t rest = 0;
  if (left > 0) std::memcpy(&rest, next, left);
  mix(rest);
  mix(bytes);
  return hash;
}

std::uint64_t checksum_share(const float* values, const Rectangle& rectangle, hsize_t columns) {
  std::uint64_t sum = 0;
  const float* next = values;
  for (hsize_t i = 0; i < rectangle.rows; ++i) {
    // Numbers start at 1, so that zeros count, too.
    std::uint64_t number = (rectangle.row + i) * columns + rectangle.column + 1;
    for (hsize_t j = 0; j < rectangle.columns; ++j) {
      std::uint64_t x = number++ * 0x9e3779b97f4a7c15ULL + std::bit_cast<std::uint32_t>(*next++);
      x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
      x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
      sum += x ^ (x >> 31);
    }
  }
  return sum;
}

std::string dataset_name(const std::string& tensor, TensorField field) {
  switch (field) {
    case TensorField::value:
      return model_name(tensor);
    case TensorField::m:
      return "/optimizer/" + tensor + "/m";
    case TensorField::v:
      return "/optimizer/" + tensor + "/v";
    case TensorField::shadow:
      return "/optimizer/" + tensor + "/shadow";
    case TensorField::velocity:
      return "/optimizer/" + tensor + "/velocity";
  }
  throw RunError("tensor '" + tensor + "': no such field");
}

std::string shape_text(const std::vector<hsize_t>& shape) {
  std::string text("[");
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text += "]";
}

void require_valid(const TensorPart& part) {
  if (part.name.empty() || part.name.find('/') != std::string::npos) {
    throw RunError("tensor '" + part.name + "' has no name that can be a dataset's");
  }
  const Rectangle& inner = part.rectangle;
  if (part.shape.empty() || part.shape.size() > 2) {
    throw RunError("tensor " + part.name + " of shape " + shape_text(part.shape) + " is neither a vector nor a matrix");
  }
  const hsize_t rows = rows_of(part.shape);
  const hsize_t columns = columns_of(part.shape);
  if (inner.row > rows || inner.rows > rows - inner.row || inner.column > columns || inner.columns > columns - inner.column) {
    throw RunError("tensor " + part.name + " of shape " + shape_text(part.shape) + " has no part of " +
                   std::to_string(inner.rows) + " x " + std::to_string(inner.columns) + " at row " + std::to_string(inner.row) +
                   ", column " + std::to_string(inner.column));
  }
}

herr_t select(hid_t space, const std::vector<hsize_t>& shape, const Rectangle& rectangle) {
  const hsize_t start[] = {rectangle.row, rectangle.column};
  const hsize_t count[] = {rectangle.rows, rectangle.columns};
  const std::size_t first = shape.size() == 1 ? 1 : 0;
  return H5Sselect_hyperslab(space, H5S_SELECT_SET, start + first, nullptr, count + first, nullptr);
}

void set_state(const hdf5::File& file, const CheckpointState& state, std::size_t datasets) {
  file.set("/", "format", std::string(checkpoint_format));
  file.set<std::int32_t>("/", "format_version", checkpoint_format_version);
  file.make_group("/model");
  file.make_group("/optimizer");
  file.make_group("/state");
  file.set<std::int64_t>("/state", "step", state.step);
  file.set<std::int64_t>("/state", "microbatches", state.microbatches);
  file.set<std::int64_t>("/state", "tokens", state.tokens);
  file.set<std::uint64_t>("/state", "seed", state.seed);
  file.set<std::int32_t>("/state", "stages", state.stages);
  file.set<double>("/state", "elapsed_s", state.elapsed_s);
  file.set("/state", "schedule", state.schedule);
  file.set("/state", "deck", state.deck);
  file.set("/state", "git_hash", state.git_hash);
  file.set<std::uint64_t>("/state", "datasets", datasets);
  file.set<std::uint64_t>("/state", checksum_key, state_checksum(state, datasets));
}

CheckpointState get_state(const hdf5::File& file, std::size_t* datasets) {
  const std::string name = file.path().string();
  if (!file.has_attribute("/", "format") || file.get_text("/", "format") != checkpoint_format) {
    throw InputError(name + ": is an HDF5 file, but not a minipipe checkpoint (its attribute 'format' is not '" +
                     checkpoint_format + "')");
  }
  const auto version = file.get<std::int32_t>("/", "format_version");
  if (version != checkpoint_format_version) {
    throw InputError(name + ": checkpoint format version " + std::to_string(version) + ", this minipipe reads version " +
                     std::to_string(checkpoint_format_version) + "; use the minipipe that wrote it");
  }
  CheckpointState state;
  state.step = file.get<std::int64_t>("/state", "step");
  state.microbatches = file.get<std::int64_t>("/state", "microbatches");
  state.tokens = file.get<std::int64_t>("/state", "tokens");
  state.seed = file.get<std::uint64_t>("/state", "seed");
  state.stages = file.get<std::int32_t>("/state", "stages");
  state.elapsed_s = file.get<double>("/state", "elapsed_s");
  state.schedule = file.get_text("/state", "schedule");
  state.deck = file.get_text("/state", "deck");
  state.git_hash = file.get_text("/state", "git_hash");
  const auto count = file.get<std::uint64_t>("/state", "datasets");
  if (file.get<std::uint64_t>("/state", checksum_key) != state_checksum(state, count)) {
    throw InputError(name + ": damaged: the checksum of /state is wrong; use an earlier checkpoint");
  }
  if (datasets != nullptr) *datasets = count;
  return state;
}

}  // namespace minipipe::core::checkpoint

namespace minipipe::core {

TensorPart whole_tensor(const std::string& name, TensorField field, const std::vector<hsize_t>& shape) {
  TensorPart part{name, field, shape, {}};
  if (!shape.empty()) part.rectangle = {0, 0, checkpoint::rows_of(shape), checkpoint::columns_of(shape)};
  return part;
}

}  // namespace minipipe::core
