#include "core/deck/sweep.hpp"

#include <algorithm>
#include <utility>

#include "core/deck/read_value.hpp"
#include "core/deck/rules.hpp"
#include "core/deck/syntax.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {
namespace {

// More would be a slip of the pen, and products would overflow.
constexpr std::int64_t most_cases = 1'000'000;

std::string quoted(const std::string& name) { return '"' + name + '"'; }

class SweepReader {
 public:
  SweepReader(const std::string& file_name, Errors& errors) : file_name_(file_name), errors_(errors) {}

  Sweep read(const toml::table& block) {
    const toml::node* zip = nullptr;
    for (const auto& [name, node] : block) {
      const std::string key = original_name(std::string(name.str()));
      if (key == "zip") {
        zip = &node;
      } else {
        read_key(key, node);
      }
    }
    if (block.empty()) errors_.add(block.source().begin.line, "[sweep]: is empty; add \"block.key\" = [values]");
    // The table is sorted by name; the file's order is the user's.
    std::stable_sort(keys_.begin(), keys_.end(), [](const Found& a, const Found& b) {
      return std::pair(a.where.line, a.where.column) < std::pair(b.where.line, b.where.column);
    });
    if (zip != nullptr) read_zip(*zip);
    check_folders();
    return axes();
  }

 private:
  struct Found {
    SweepKey key;
    toml::source_position where;
    int group = -1;
  };

  void read_key(const std::string& name, const toml::node& node) {
    const auto line = static_cast<std::int64_t>(node.source().begin.line);
    const std::string start = "sweep." + quoted(name) + ": ";
    if (node.is_table()) {
      return errors_.add(line, "sweep." + name + ": put the key in quotes: \"" + name + ".key\" = [values]");
    }
    const auto dot = name.find('.');
    const std::string block = dot == std::string::npos ? "" : name.substr(0, dot);
    const std::string key = dot == std::string::npos ? name : name.substr(dot + 1);
    const Entry* entry = find_entry(block, key);
    if (entry == nullptr) return errors_.add(line, start + unknown_key(block, key));
    const auto* array = node.as_array();
    if (array == nullptr || array->empty()) {
      return errors_.add(line, start + "must be a list of the values to take, not " +
                                   (array != nullptr ? std::string("an empty one") : shown(node)));
    }
    Found found;
    found.key.entry = entry;
    found.key.origin = file_name_ + ":" + std::to_string(line);
    found.where = node.source().begin;
    for (const toml::node& element : *array) {
      const Reading reading = read_value(element, *entry);
      if (reading.value) {
        found.key.values.push_back(*reading.value);
      } else {
        errors_.add(static_cast<std::int64_t>(element.source().begin.line),
                    start + shown(element) + " " + reading.problem + allowed(*entry));
      }
    }
    // A second look at the key under an alias: its repetition has been reported.
    const bool repeated = std::any_of(keys_.begin(), keys_.end(), [&](const Found& other) { return other.key.entry == entry; });
    if (!repeated) keys_.push_back(std::move(found));
  }

  void read_zip(const toml::node& node) {
    constexpr const char* form = "must be a list of groups of swept keys: [[\"block.key\", \"block.key\"], ...]";
    const auto line = static_cast<std::int64_t>(node.source().begin.line);
    const auto* groups = node.as_array();
    if (groups == nullptr) return errors_.add(line, std::string("sweep.zip: ") + form);
    int number = 0;
    for (const toml::node& group : *groups) {
      const auto* names = group.as_array();
      if (names == nullptr || names->size() < 2) {
        errors_.add(line, "sweep.zip: " + shown(group) + " " + form);
        continue;
      }
      read_group(*names, number++, static_cast<std::int64_t>(group.source().begin.line));
    }
  }

  void read_group(const toml::array& names, int number, std::int64_t line) {
    std::string lengths;
    bool equal = true;
    const Found* first = nullptr;
    for (const toml::node& node : names) {
      const auto* text = node.as_string();
      const std::string name = text != nullptr ? text->get() : "";
      const auto found = std::find_if(keys_.begin(), keys_.end(), [&](const Found& f) { return f.key.entry->name() == name; });
      if (found == keys_.end()) {
        errors_.add(line, "sweep.zip: " + shown(node) + " is not a key of [sweep]; add its list of values, or leave it out");
      } else if (found->group >= 0) {
        errors_.add(line, "sweep.zip: " + shown(node) + " is named twice; a key moves with one group");
      } else {
        found->group = number;
        if (first == nullptr) first = &*found;
        equal = equal && found->key.values.size() == first->key.values.size();
        lengths += (lengths.empty() ? "" : ", ") + name + " has " + std::to_string(found->key.values.size());
      }
    }
    if (!equal) errors_.add(line, "sweep.zip: lists of unequal length: " + lengths + "; give all keys of a group equally many");
  }

  Sweep axes() {
    Sweep sweep;
    std::vector<int> groups;
    for (Found& found : keys_) {
      const auto at = std::find(groups.begin(), groups.end(), found.group);
      if (found.group >= 0 && at != groups.end()) {
        sweep.axes[static_cast<std::size_t>(at - groups.begin())].push_back(std::move(found.key));
      } else {
        sweep.axes.push_back({std::move(found.key)});
        groups.push_back(found.group);
      }
    }
    std::int64_t cases = 1;
    for (const auto& axis : sweep.axes) {
      cases *= std::max<std::int64_t>(1, static_cast<std::int64_t>(axis.front().values.size()));
      if (cases > most_cases) {
        errors_.add(1, "[sweep]: more than " + std::to_string(most_cases) + " cases; sweep over fewer values, or zip keys");
        break;
      }
    }
    return sweep;
  }

  // Each case needs a folder of its own.
  void check_folders() {
    const auto folder =
        std::find_if(keys_.begin(), keys_.end(), [](const Found& f) { return f.key.entry->name() == "output.directory"; });
    if (folder == keys_.end()) return;
    const auto line = static_cast<std::int64_t>(folder->where.line);
    const std::string start = "sweep.\"output.directory\": ";
    const std::vector<Value>& values = folder->key.values;
    for (auto value = values.begin(); value != values.end(); ++value) {
      if (std::find(values.begin(), value, *value) != value) {
        return errors_.add(line, start + to_toml(*value) + " is named twice; each case needs a folder of its own");
      }
    }
    for (const Found& other : keys_) {
      const bool together = &other == &*folder || (other.group >= 0 && other.group == folder->group);
      if (!together && other.key.values.size() > 1) {
        return errors_.add(line, start + "several cases would write to each folder, those of " + other.key.entry->name() +
                                     "; zip the two, or leave the folders to the sweep (output.directory/case_K)");
      }
    }
  }

  const std::string& file_name_;
  Errors& errors_;
  std::vector<Found> keys_;
};

// 0: as many as are started.
int ranks_needed(const Deck& deck) {
  if (deck.parallel.stages == 0 || deck.schedule.name == "plan") return 0;
  return std::max(1, deck.parallel.stages / chunks_of(deck)) * deck.parallel.data;
}

}  // namespace

std::int64_t Sweep::cases() const {
  std::int64_t product = 1;
  for (const auto& axis : axes) product *= static_cast<std::int64_t>(axis.front().values.size());
  return product;
}

const SweepKey* Sweep::find(const std::string& name) const {
  for (const auto& axis : axes) {
    for (const SweepKey& key : axis) {
      if (key.entry->name() == name) return &key;
    }
  }
  return nullptr;
}

void read_sweep(const toml::table& block, const std::string& file_name, Errors& errors, Sweep& sweep) {
  sweep = SweepReader(file_name, errors).read(block);
}

Deck case_of(const SweepDeck& deck, std::int64_t number) {
  if (deck.sweep.empty()) {
    throw InputError("--case " + std::to_string(number) + ": the deck has no block [sweep]; leave --case out, or add one");
  }
  const std::int64_t cases = deck.sweep.cases();
  if (number < 0 || number >= cases) {
    throw InputError("--case " + std::to_string(number) + ": the deck's sweep has cases 0 to " + std::to_string(cases - 1) +
                     " (minipipe train DECK --cases --list shows them)");
  }
  Deck result = deck.deck;
  result.case_number = number;
  std::int64_t slower = cases;
  for (const auto& axis : deck.sweep.axes) {
    const auto size = static_cast<std::int64_t>(axis.front().values.size());
    slower /= size;
    const auto at = static_cast<std::size_t>(number / slower % size);
    for (const SweepKey& key : axis) {
      key.entry->set(result, key.values[at]);
      result.origins[key.entry->name()] = key.origin + ", case " + std::to_string(number);
      result.swept.emplace_back(key.entry->name(), to_toml(key.values[at]));
    }
  }
  if (deck.sweep.find("output.directory") == nullptr) result.output.directory += "/case_" + std::to_string(number);
  return result;
}

std::string list_cases(const SweepDeck& deck) {
  std::string text = "# case\tranks\tfolder\tvalues\n";
  for (std::int64_t number = 0; number < deck.sweep.cases(); ++number) {
    const Deck one = case_of(deck, number);
    text += std::to_string(number) + '\t' + std::to_string(ranks_needed(one)) + '\t' + one.output.directory + '\t';
    for (const auto& [key, value] : one.swept) text += (key == one.swept.front().first ? "" : " ") + key + "=" + value;
    text += '\n';
  }
  return text;
}

}  // namespace minipipe::core
