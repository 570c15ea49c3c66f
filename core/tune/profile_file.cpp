#include "core/tune/profile_file.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "core/deck/text.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {
namespace {

using nlohmann::json;
using Table = std::map<char, double>;

class Reader {
 public:
  Reader(const json& root, std::string file) : root_(root), file_(std::move(file)) {}

  [[noreturn]] void fail(const std::string& path, const std::string& problem) const {
    throw InputError("profile " + file_ + ": " + path + " " + problem);
  }

  void only(const json& object, const std::string& prefix, const std::set<std::string>& known) const {
    for (const auto& [key, value] : object.items()) {
      if (known.contains(key)) continue;
      std::string names;
      for (const auto& name : known) names += (names.empty() ? "" : ", ") + name;
      fail(prefix + key, "is not a key of a profile; known are " + names);
    }
  }

  double number(const json& value, const std::string& path) const {
    if (!value.is_number())
      fail(path, "is " + shortened(value.dump()) + ", not a number; give one" +
                     (path.find("_ms") != std::string::npos ? " in milliseconds" : "") + ", or 0 for none");
    const double result = value.get<double>();
    if (!(result >= 0) || !std::isfinite(result)) fail(path, "is " + value.dump() + "; it must be 0 or more");
    return result;
  }

  int whole(const json& value, const std::string& path, int least) const {
    constexpr int most = 1000000;
    if (!value.is_number_integer() || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
      fail(path, "is " + shortened(value.dump()) + "; it must be a whole number, " + std::to_string(least) + " to " +
                     std::to_string(most) + ", in digits only");
    }
    return value.get<int>();
  }

  std::string text(const json& object, const std::string& key, const std::string& prefix = "") const {
    if (!object.contains(key)) return "";
    if (!object[key].is_string()) fail(prefix + key, "is " + object[key].dump() + ", not a text");
    return object[key].get<std::string>();
  }

  Table table(const std::string& key, bool required) const {
    if (!root_.contains(key)) {
      if (required) fail(key, "is missing; give a table from layer symbol to cost, such as {\"M\": 2.7}");
      return {};
    }
    if (!root_[key].is_object()) fail(key, "is not a table from layer symbol to cost");
    Table result;
    for (const auto& [symbol, value] : root_[key].items()) {
      const std::string path = key + "." + symbol;
      if (symbol.size() != 1) fail(path, "is not the cost of a layer; symbols are single characters");
      result[symbol[0]] = number(value, path);
      // A tick is 0.01 ms, and sums of ticks must stay exact.
      if (key.ends_with("_ms") && result[symbol[0]] > 1e9) fail(path, "is " + value.dump() + "; it must be at most 1e9 ms");
    }
    return result;
  }

  std::vector<int> whole_numbers(const json& value, const std::string& path) const {
    if (!value.is_array()) fail(path, "is missing or not a list");
    std::vector<int> result;
    for (std::size_t i = 0; i < value.size(); ++i) {
      result.push_back(whole(value[i], path + "[" + std::to_string(i) + "]", 0));
    }
    return result;
  }

 private:
  const json& root_;
  std::string file_;
};

// JSON itself lets a later value replace an earlier one.
json parse_once(const std::string& text, const std::string& file) {
  std::vector<std::set<std::string>> objects;
  const auto look = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) objects.emplace_back();
    if (event == json::parse_event_t::object_end) objects.pop_back();
    if (event == json::parse_event_t::key && !objects.back().insert(parsed.get<std::string>()).second) {
      throw InputError("profile " + file + ": " + shortened(parsed.get<std::string>()) +
                       " is a repeated key; give it once in its object");
    }
    return true;
  };
  return json::parse(text, look);
}

double entry(const Table& table, char symbol, double otherwise) {
  const auto found = table.find(symbol);
  return found == table.end() ? otherwise : found->second;
}

schedules::Placement read_placement(const Reader& reader, const json& value, const std::string& path, std::size_t stages) {
  if (!value.is_array() || value.empty()) reader.fail(path, "is missing or not a list with the stages of each device");
  schedules::Placement placement{static_cast<int>(value.size()), std::vector<int>(stages, -1)};
  for (std::size_t d = 0; d < value.size(); ++d) {
    const std::string row = path + "[" + std::to_string(d) + "]";
    for (const int stage : reader.whole_numbers(value[d], row)) {
      const auto s = static_cast<std::size_t>(stage);
      if (s >= stages) reader.fail(row, "names stage " + std::to_string(stage) + ", which the partition does not have");
      if (placement.rank_of_stage[s] >= 0) reader.fail(row, "names stage " + std::to_string(stage) + " a second time");
      placement.rank_of_stage[s] = static_cast<int>(d);
    }
  }
  const auto open = std::find(placement.rank_of_stage.begin(), placement.rank_of_stage.end(), -1);
  if (open != placement.rank_of_stage.end()) {
    reader.fail(path, "leaves out stage " + std::to_string(open - placement.rank_of_stage.begin()));
  }
  return placement;
}

ProfileCase read_case(const Reader& reader, const json& value, const std::string& prefix, int layers) {
  if (!value.is_object()) reader.fail(prefix, "is not an object");
  const std::string dot = prefix + ".";
  reader.only(value, dot,
              {"name", "partition", "placement", "schedule", "makespan_ticks", "compute_ticks", "bubble_percent", "note"});
  ProfileCase result;
  result.name = reader.text(value, "name", dot);
  result.schedule = reader.text(value, "schedule", dot);
  result.partition = reader.whole_numbers(value.value("partition", json()), dot + "partition");
  const int sum = std::accumulate(result.partition.begin(), result.partition.end(), 0);
  if (sum != layers) {
    reader.fail(dot + "partition", "adds up to " + std::to_string(sum) + ", not to the " + std::to_string(layers) + " layers");
  }
  result.placement = read_placement(reader, value.value("placement", json()), dot + "placement", result.partition.size());
  if (value.contains("makespan_ticks")) {
    result.makespan_ticks = reader.number(value["makespan_ticks"], dot + "makespan_ticks");
  }
  const json ticks = value.value("compute_ticks", json::array());
  if (!ticks.is_array()) reader.fail(dot + "compute_ticks", "is not a list");
  for (std::size_t d = 0; d < ticks.size(); ++d) {
    result.compute_ticks.push_back(reader.number(ticks[d], dot + "compute_ticks[" + std::to_string(d) + "]"));
  }
  if (result.schedule.starts_with("1f1b")) {
    result.schedule = "1f1b";
    if (result.placement.stages() != result.placement.ranks) {
      reader.fail(dot + "placement", "has several stages on a device, which 1f1b does not have");
    }
  } else if (result.schedule.starts_with("list scheduler")) {
    result.schedule = "list scheduler";
  } else {
    reader.fail(dot + "schedule", "is \"" + result.schedule + "\"; use \"1f1b\" or \"list scheduler\"");
  }
  return result;
}

ProfileGrowth read_growth(const Reader& reader, const json& root, const std::string& pattern) {
  const auto optional = [&](const std::string& key) { return root.contains(key) ? reader.number(root[key], key) : 0; };
  ProfileGrowth growth;
  growth.width = optional("width");
  growth.sequence = optional("sequence");
  growth.latency_ms = optional("communication_ms");
  if (growth.latency_ms > 1e9) reader.fail("communication_ms", "is above 1e9 ms; it must be at most that");
  const double gb_per_s = optional("link_gb_per_s");
  if (gb_per_s > 0) growth.transfer_ms = optional("message_bytes") / (1e6 * gb_per_s);
  growth.exchange_gb_per_s = optional("exchange_gb_per_s");
  growth.exchange_latency_ms = optional("exchange_latency_ms");
  const Table shares = reader.table("attention_share", false);
  for (const auto& [symbol, share] : shares) {
    if (share > 1) reader.fail(std::string("attention_share.") + symbol, "is above 1; it is a share of the layer's time");
  }
  for (const char symbol : pattern) growth.attention_share.push_back(entry(shares, symbol, 0));
  return growth;
}

}  // namespace

ProfileFile parse_profile(const std::string& text, const std::string& file) {
  json root;
  try {
    root = parse_once(text, file);
  } catch (const json::exception& error) {
    throw InputError("profile " + file + ": not JSON: " + error.what());
  }
  const Reader reader(root, file);
  if (!root.is_object()) throw InputError("profile " + file + ": is not a JSON object");
  reader.only(root, "",
              {"source",
               "unit",
               "name",
               "layers",
               "embedding",
               "head",
               "microbatches",
               "devices",
               "communication_ms",
               "forward_ms",
               "backward_ms",
               "weight_ms",
               "activation_units",
               "activation_bytes",
               "parameter_bytes",
               "gradient_bytes",
               "attention_share",
               "width",
               "sequence",
               "message_bytes",
               "link_gb_per_s",
               "exchange_gb_per_s",
               "exchange_latency_ms",
               "machine",
               "total_work_ticks",
               "lower_bound_ticks",
               "cases",
               "note"});
  const Table times[3] = {reader.table("forward_ms", true), reader.table("backward_ms", true), reader.table("weight_ms", true)};
  const char* const names[3] = {"forward_ms", "backward_ms", "weight_ms"};
  for (const Table& one : times) {
    for (const auto& [symbol, unused] : one) {
      for (int i = 0; i < 3; ++i) {
        if (!times[i].contains(symbol)) {
          reader.fail(std::string(names[i]) + "." + symbol, "is missing; the other tables have this symbol; write 0 for none");
        }
      }
    }
  }
  const Table units = reader.table("activation_units", false);
  const Table activations = reader.table("activation_bytes", false);
  const Table parameters = reader.table("parameter_bytes", false);
  const Table gradients = reader.table("gradient_bytes", false);
  for (const char* key : {"activation_units", "activation_bytes", "parameter_bytes", "gradient_bytes", "attention_share"}) {
    for (const auto& [symbol, unused] : reader.table(key, false)) {
      if (!times[0].contains(symbol)) {
        reader.fail(std::string(key) + "." + symbol, "is of a layer that has no times; add it to forward_ms or leave it out");
      }
    }
  }
  const auto costs = [&](char symbol, double default_units) {
    return schedules::LayerCosts{entry(times[0], symbol, 0),    entry(times[1], symbol, 0),
                                 entry(times[2], symbol, 0),    entry(units, symbol, default_units),
                                 entry(activations, symbol, 0), entry(parameters, symbol, 0),
                                 entry(gradients, symbol, 0)};
  };
  ProfileFile result;
  schedules::CostProfile& profile = result.profile;
  profile.name = reader.text(root, "name");
  if (profile.name.empty()) profile.name = file.substr(file.find_last_of('/') + 1);
  if (!root.contains("layers")) reader.fail("layers", "is missing; give one symbol per layer, such as \"M-M*\"");
  profile.pattern = reader.text(root, "layers");
  if (profile.pattern.empty()) reader.fail("layers", "is empty; give one symbol per layer, such as \"M-M*\"");
  for (std::size_t i = 0; i < profile.pattern.size(); ++i) {
    const char symbol = profile.pattern[i];
    const bool reserved = symbol == 'E' || symbol == 'L';
    if (reserved || !times[0].contains(symbol)) {
      reader.fail("layers",
                  "has '" + letter_at(profile.pattern, i) + "' at position " + std::to_string(i) + ", " +
                      (reserved ? "which stands for embedding or head and is no layer" : "which has no cost in forward_ms"));
    }
    profile.layers.push_back(costs(symbol, 1));
  }
  profile.embedding = costs('E', 0);
  profile.head = costs('L', 0);
  result.growth = read_growth(reader, root, profile.pattern);
  profile.link = result.growth.latency_ms + result.growth.transfer_ms;
  if (root.contains("devices")) result.devices = reader.whole(root["devices"], "devices", 1);
  if (root.contains("microbatches")) result.microbatches = reader.whole(root["microbatches"], "microbatches", 1);
  result.machine = reader.text(root, "machine");
  if (!root.contains("cases")) return result;
  if (!root["cases"].is_array()) reader.fail("cases", "is not a list");
  if (result.microbatches == 0) reader.fail("microbatches", "is missing; cases need it");
  for (std::size_t i = 0; i < root["cases"].size(); ++i) {
    result.cases.push_back(read_case(reader, root["cases"][i], "cases[" + std::to_string(i) + "]", profile.size()));
  }
  return result;
}

ProfileFile read_json_profile(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) throw InputError("profile " + file + ": cannot be read");
  return parse_profile(text.str(), file);
}

}  // namespace minipipe::core
