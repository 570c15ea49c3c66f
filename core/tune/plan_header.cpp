#include "core/tune/plan_header.hpp"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <istream>
#include <ostream>
#include <sstream>

#include "core/deck/rule_list.hpp"
#include "schedules/error.hpp"
#include "schedules/plan/csv.hpp"

namespace minipipe::core {
namespace {

// FNV-1a, 64 bits.
struct Hash {
  std::uint64_t value = 14695981039346656037ull;
  void add(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < size; ++i) value = (value ^ bytes[i]) * 1099511628211ull;
  }
  void add(double number) { add(&number, sizeof number); }
};

std::string joined(const std::vector<int>& list) {
  std::string text;
  for (const int value : list) text += (text.empty() ? "" : ",") + std::to_string(value);
  return "[" + text + "]";
}

}  // namespace

std::string fingerprint(const schedules::CostProfile& profile) {
  Hash hash;
  const auto add = [&](const schedules::LayerCosts& costs) {
    for (const double value : {costs.forward, costs.backward_input, costs.backward_weight, costs.units, costs.activation_bytes,
                               costs.parameter_bytes, costs.gradient_bytes}) {
      hash.add(value);
    }
  };
  add(profile.embedding);
  for (const auto& layer : profile.layers) add(layer);
  add(profile.head);
  hash.add(profile.link);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash.value));
  return text;
}

std::string machine_name() {
  char name[256] = "unknown";
  gethostname(name, sizeof name - 1);
  return name;
}

PlanHeader header_of(const schedules::TunedPlan& plan, const schedules::CostProfile& profile, int microbatches,
                     const std::string& machine) {
  return {profile.name,   profile.size(),       plan.placement.ranks,
          microbatches,   fingerprint(profile), machine.empty() ? "any" : machine,
          plan.partition, plan.makespan};
}

void write_plan_file(std::ostream& stream, const PlanHeader& header, const schedules::Plan& order) {
  // Whole ticks as such, however many.
  const auto digits = stream.precision(17);
  stream << "# minipipe plan\n"
         << "# model: " << header.model << "\n# layers: " << header.layers << "\n# devices: " << header.devices
         << "\n# microbatches: " << header.microbatches << "\n# profile: " << header.profile
         << "\n# machine: " << header.machine << "\n# partition: " << joined(header.partition)
         << "\n# makespan: " << header.makespan << "\n";
  stream.precision(digits);
  schedules::write_csv(stream, order);
}

PlanHeader read_plan_header(std::istream& stream, const std::string& file) {
  PlanHeader header;
  std::string line;
  for (int row = 1; std::getline(stream, line); ++row) {
    if (row == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);  // the byte order mark of some editors
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.starts_with("# ")) continue;
    const auto colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(2, colon - 2);
    const std::string text = line.substr(colon + 2);
    std::istringstream value(text);
    bool good = true;
    const auto count = [&](int& number) { return value >> number && value.peek() == EOF && number >= 1; };
    if (key == "model") header.model = text;
    if (key == "profile") header.profile = text;
    if (key == "machine") header.machine = text;
    if (key == "layers") good = count(header.layers);
    if (key == "devices") good = count(header.devices);
    if (key == "microbatches") good = count(header.microbatches);
    if (key == "makespan") good = static_cast<bool>(value >> header.makespan);
    if (key == "partition") {
      char mark = 0;
      int layers = 0;
      good = value >> mark && mark == '[';
      while (good && mark != ']') {
        good = static_cast<bool>(value >> layers >> mark);
        header.partition.push_back(layers);
      }
    }
    if (!good) throw InputError(file + ": line " + std::to_string(row) + ": '" + line + "' does not say its " + key);
  }
  return header;
}

void check_plan_header(const Deck& deck, int ranks) {
  if (deck.schedule.name != "plan" || deck.schedule.plan.empty()) return;
  std::ifstream stream(deck.schedule.plan);
  if (!stream) return;  // the rules of the deck say so
  const PlanHeader header = read_plan_header(stream, deck.schedule.plan);
  const auto require = [&](bool condition, const std::string& what) {
    if (!condition) throw InputError("schedule.plan = \"" + deck.schedule.plan + "\": the plan was made for " + what);
  };
  require(header.layers == 0 || header.layers == deck.model.layers,
          plural(header.layers, "layer") + ", but model.layers = " + std::to_string(deck.model.layers) +
              "; tune again for this model");
  require(header.microbatches == 0 || header.microbatches == deck.train.microbatches,
          plural(header.microbatches, "microbatch") + ", but train.microbatches = " + std::to_string(deck.train.microbatches) +
              "; tune again or change it");
  const int in_one_process = deck.parallel.data;
  require(header.devices == 0 || ranks == in_one_process || header.devices * deck.parallel.data == ranks,
          plural(header.devices, "device") + ", but there are " + plural(ranks, "rank") + " for " +
              plural(deck.parallel.data, "pipeline") + "; tune again with --devices");
  require(header.partition.empty() || deck.emulate.enabled || header.partition == deck.schedule.partition,
          "the partition " + joined(header.partition) + "; set schedule.partition to it");
  require(header.machine == "any" || header.machine.empty() || header.machine == machine_name(),
          "machine " + header.machine + ", but this is " + machine_name() + "; profile and tune here");
}

}  // namespace minipipe::core
