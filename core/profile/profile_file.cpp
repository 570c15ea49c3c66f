#include "core/profile/profile_file.hpp"

#include <cmath>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/io/hdf5.hpp"
#include "core/io/output_option.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

constexpr const char* format_name = "minipipe profile";
constexpr std::int64_t format_version = 2;

constexpr double most_seconds = 1e6;

template <class Number>
std::string number_text(Number value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

// The kinds of layers a file has, each with the name of its attributes.
using Kinds = std::vector<std::pair<LayerKind, const char*>>;

Kinds kinds_of(const Profile& profile) {
  Kinds kinds;
  for (const LayerKind kind : profile.kinds()) kinds.emplace_back(kind, name_of(kind));
  return kinds;
}

// Version 1 knew one kind of layer, "block".
Kinds kinds_of(const hdf5::File& file, std::int64_t version) {
  if (version == 1) return {{LayerKind::transformer, "block"}};
  Kinds kinds;
  for (int k = 0; k < layer_kinds; ++k) {
    const auto kind = static_cast<LayerKind>(k);
    if (file.has_attribute("/parameters", name_of(kind))) kinds.emplace_back(kind, name_of(kind));
  }
  return kinds;
}

// One list of what is in the file, for writing and reading: `visit(object, key, value)`.
template <class Times, class Visit>
void visit_layers(const std::string& object, const Kinds& kinds, Times& times, Visit& visit) {
  visit(object, "embedding", times.embedding);
  for (const auto& [kind, name] : kinds) visit(object, name, times.of(kind));
  visit(object, "head", times.head);
  visit(object, "received", times.received);
}

template <class Rank, class Visit>
void visit_rank(const std::string& group, const Kinds& kinds, Rank& rank, Visit& visit) {
  visit_layers(group + "/forward", kinds, rank.forward, visit);
  visit_layers(group + "/backward", kinds, rank.backward, visit);
  visit_layers(group + "/backward_input", kinds, rank.backward_input, visit);
  visit_layers(group + "/backward_weight", kinds, rank.backward_weight, visit);
  visit_layers(group + "/update", kinds, rank.update, visit);
  visit(group, "weight_copy", rank.weight_copy);
  visit(group, "weight_correct", rank.weight_correct);
  visit(group, "message_copy", rank.message_copy);
  visit(group, "residual", rank.residual);
}

template <class Any, class Visit>
void visit_bytes(const Kinds& kinds, std::int64_t version, Any& profile, Visit& visit) {
  const auto one = [&](const char* name, auto& bytes) {
    visit("/parameters", name, bytes.parameters);
    if (version > 1) visit("/activation_bytes", name, bytes.activations);
  };
  one("embedding", profile.embedding);
  for (const auto& [kind, name] : kinds) one(name, profile.of(kind));
  one("head", profile.head);
}

template <class Any, class Visit>
void visit_numbers(Any& profile, Visit& visit) {
  visit("/", "threads", profile.machine.threads);
  visit("/", "message_bytes", profile.message_bytes);
  visit("/link", "send", profile.link.send);
  visit("/link", "receive", profile.link.receive);
  visit("/link", "one_way", profile.link.one_way);
  visit("/link", "latency", profile.link.latency);
  visit("/link", "bytes_per_s", profile.link.bytes_per_s);
}

template <class Any, class Visit>
void visit_texts(Any& profile, Visit& visit) {
  visit("/", "host", profile.machine.hosts);
  visit("/", "cpu", profile.machine.cpu);
  visit("/", "execution_space", profile.machine.execution_space);
  visit("/", "deck", profile.deck);
  visit("/", "version", profile.version);
  visit("/", "git_hash", profile.git_hash);
}

std::string rank_group(std::size_t rank) { return "/ranks/" + std::to_string(rank); }

Profile read_checked(const std::filesystem::path& path) {
  const auto file = hdf5::File::open(path, false);
  if (!file.has_attribute("/", "format") || file.get_text("/", "format") != format_name) {
    throw InputError("profile " + path.string() + ": is not a minipipe profile; make one with minipipe profile DECK");
  }
  const auto version = file.get<std::int64_t>("/", "format_version");
  if (version < 1 || version > format_version) {
    throw InputError("profile " + path.string() + ": has format version " + std::to_string(version) +
                     ", this program reads 1 to " + std::to_string(format_version) +
                     "; measure again with minipipe profile DECK");
  }
  Profile profile;
  const auto number = [&](const std::string& object, const char* key, auto& value) {
    value = file.get<std::remove_reference_t<decltype(value)>>(object, key);
    std::string problem;
    if (!(value >= 0)) problem = " must be 0 or more";
    // 1e9 ms, as in JSON: sums of a simulation must stay exact.
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(value)>, double>) {
      const bool rate = std::string_view(key) == "bytes_per_s";
      if (rate && !std::isfinite(value)) problem = " must be finite";
      if (!rate && value > most_seconds) problem = " must be at most 1e6 s";
    }
    if (!problem.empty()) {
      throw InputError("profile " + path.string() + ": " + object + " " + key + " = " + number_text(value) + problem +
                       "; measure again with minipipe profile DECK");
    }
  };
  const auto text = [&](const std::string& object, const char* key, std::string& value) { value = file.get_text(object, key); };
  const Kinds kinds = kinds_of(file, version);
  visit_numbers(profile, number);
  visit_bytes(kinds, version, profile, number);
  visit_texts(profile, text);
  if (version > 1) text("/", "undetermined", profile.undetermined);
  for (const std::string& key : file.attribute_names("/model")) profile.model[key] = file.get_text("/model", key);
  profile.ranks.resize(file.names("/ranks").size());
  for (std::size_t r = 0; r < profile.ranks.size(); ++r) visit_rank(rank_group(r), kinds, profile.ranks[r], number);
  if (profile.ranks.empty()) throw InputError("profile " + path.string() + ": has no ranks; measure again");
  return profile;
}

void fill(const std::filesystem::path& path, const Profile& profile) {
  hdf5::File file = hdf5::File::create(path);
  file.set("/", "format", std::string(format_name));
  file.set("/", "format_version", format_version);
  for (const char* group : {"/model", "/parameters", "/activation_bytes", "/link", "/ranks"}) file.make_group(group);
  const auto set = [&](const std::string& object, const char* key, const auto& value) {
    file.make_group(object);
    file.set(object, key, value);
  };
  const Kinds kinds = kinds_of(profile);
  visit_numbers(profile, set);
  visit_bytes(kinds, format_version, profile, set);
  visit_texts(profile, set);
  set("/", "undetermined", profile.undetermined);
  for (const auto& [key, value] : profile.model) file.set("/model", key, value);
  for (std::size_t r = 0; r < profile.ranks.size(); ++r) visit_rank(rank_group(r), kinds, profile.ranks[r], set);
  visit_rank("/mean", kinds, static_cast<const RankProfile&>(profile.mean()), set);
  file.close();
}

}  // namespace

void write_profile(const std::filesystem::path& path, const Profile& profile) {
  // Upper bounds, generous: the deck's text, and the groups of a rank.
  const std::uint64_t most_bytes = (std::uint64_t{1} << 20) + profile.ranks.size() * (std::uint64_t{64} << 10);
  write_output("--out", path, most_bytes, [&](const std::filesystem::path& temporary) { fill(temporary, profile); });
}

Profile read_profile(const std::filesystem::path& path) {
  try {
    return read_checked(path);
  } catch (const RunError& error) {
    throw InputError(std::string("profile ") + error.what() + "; make one with minipipe profile DECK");
  }
}

}  // namespace minipipe::core
