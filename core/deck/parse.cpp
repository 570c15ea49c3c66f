#include "core/deck/parse.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <utility>

#include "core/deck/errors.hpp"
#include "core/deck/read_value.hpp"
#include "core/deck/schema.hpp"
#include "core/deck/suggest.hpp"
#include "core/deck/sweep.hpp"
#include "core/deck/syntax.hpp"
#include "core/deck/text.hpp"

namespace minipipe::core {

std::string shown(const toml::node& node) {
  if (const auto* text = node.as_string()) return shortened(to_toml(Value(text->get())));
  if (const auto* integer = node.as_integer()) return std::to_string(integer->get());
  if (const auto* real = node.as_floating_point()) return to_toml(Value(real->get()));
  if (node.is_table()) return "{...}";
  std::ostringstream out;
  node.visit([&out](const auto& typed) { out << typed; });
  return shortened(out.str());
}

namespace {

std::string kind_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a float";
    case toml::node_type::boolean:
      return "a boolean";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::table:
      return "a block";
    default:
      return "a date or time";
  }
}

// One number of the wanted type. A float may be written as an integer, never the other way round.
template <class Number>
std::optional<Number> number_of(const toml::node& node) {
  if (const auto* integer = node.as_integer()) return static_cast<Number>(integer->get());
  if constexpr (std::is_same_v<Number, double>) {
    if (const auto* real = node.as_floating_point()) return real->get();
  }
  return std::nullopt;
}

Reading wrong_type(const Entry& entry, const std::string& found) {
  return {std::nullopt, "must be " + std::string(type_name(entry.type)) + ", not " + found};
}

template <class Number>
Reading read_number(const toml::node& node, const Entry& entry) {
  const auto number = number_of<Number>(node);
  if (!number) return wrong_type(entry, kind_name(node));
  if (!std::isfinite(static_cast<double>(*number))) return {std::nullopt, "must be finite"};
  if (static_cast<double>(*number) > entry.limits.high)
    return {std::nullopt, "is above " + to_toml(Value(static_cast<Number>(entry.limits.high)))};
  if (!entry.limits.contains(static_cast<double>(*number))) return {std::nullopt, "is out of range"};
  return {Value(*number), ""};
}

template <class Number>
Reading read_list(const toml::node& node, const Entry& entry) {
  const auto* array = node.as_array();
  if (!array) return wrong_type(entry, kind_name(node));
  std::vector<Number> numbers;
  for (const toml::node& element : *array) {
    const auto number = number_of<Number>(element);
    if (!number) return wrong_type(entry, "one with " + kind_name(element));
    if (!std::isfinite(static_cast<double>(*number))) {
      return {std::nullopt, "element " + std::to_string(numbers.size() + 1) + " must be finite"};
    }
    if (!entry.limits.contains(static_cast<double>(*number))) {
      return {std::nullopt, "element " + std::to_string(numbers.size() + 1) + " is out of range"};
    }
    numbers.push_back(*number);
  }
  return {Value(numbers), ""};
}

Reading read_text(const std::string& text, const Entry& entry) {
  const auto& choices = entry.limits.choices;
  if (choices.empty() || std::find(choices.begin(), choices.end(), text) != choices.end()) return {Value(text), ""};
  const auto near = nearest(text, choices);
  return {std::nullopt, "unknown choice" + (near ? ", did you mean \"" + *near + "\"?" : std::string())};
}

}  // namespace

Reading read_value(const toml::node& node, const Entry& entry) {
  switch (entry.type) {
    case Type::boolean:
      if (const auto* boolean = node.as_boolean()) return {Value(boolean->get()), ""};
      return wrong_type(entry, kind_name(node));
    case Type::integer:
      return read_number<std::int64_t>(node, entry);
    case Type::real:
      return read_number<double>(node, entry);
    case Type::text:
      if (const auto* text = node.as_string()) return read_text(text->get(), entry);
      return wrong_type(entry, kind_name(node));
    case Type::integers:
      return read_list<std::int64_t>(node, entry);
    case Type::reals:
      return read_list<double>(node, entry);
  }
  return {};
}

std::string allowed(const Entry& entry) {
  const std::string limits = entry.limits.text();
  return limits.empty() ? "" : "; allowed: " + limits;
}

namespace {

std::string unknown_block(const std::string& block) {
  if (block == "sweep") return "a sweep is written in the deck, not on the command line";
  std::vector<std::string> names;
  std::string list;
  for (const BlockDoc& known : schema_blocks()) {
    names.push_back(known.name);
    list += (list.empty() ? "" : ", ") + known.name;
  }
  const auto near = nearest(block, names);
  return "unknown block" + (near ? "; did you mean [" + *near + "]?" : "; blocks are " + list);
}

}  // namespace

std::string unknown_key(const std::string& block, const std::string& key) {
  std::vector<std::string> own;
  std::vector<std::string> all;
  std::string elsewhere;
  std::string list;
  for (const Entry& entry : schema()) {
    all.push_back(entry.key);
    if (entry.block == block) {
      own.push_back(entry.key);
      list += (list.empty() ? "" : ", ") + entry.key;
    } else if (entry.key == key) {
      elsewhere += (elsewhere.empty() ? "" : " or ") + entry.name();
    }
  }
  if (!elsewhere.empty()) return "unknown key; did you mean " + elsewhere + "?";
  if (const auto near = nearest(key, own)) return "unknown key; did you mean " + block + "." + *near + "?";
  if (const auto near = nearest(key, all)) {
    for (const Entry& entry : schema()) {
      if (entry.key == *near) return "unknown key; did you mean " + entry.name() + "?";
    }
  }
  return own.empty() ? "unknown key; see --help-deck" : "unknown key; keys of [" + block + "] are " + list;
}

namespace {

class Reader {
 public:
  Reader(const std::string& file_name, Errors& errors) : file_name_(file_name), errors_(errors) {}

  void read_file(const toml::table& root) {
    for (const auto& [name, node] : root) {
      const std::string block = original_name(std::string(name.str()));
      const toml::table* table = node.as_table();
      if (table == nullptr) {
        outside_a_block(block, node);
      } else if (block == "sweep") {
        read_sweep(*table, file_name_, errors_, sweep_);
      } else if (!is_block(block)) {
        errors_.add(line_of(node), "[" + block + "]: " + unknown_block(block));
      } else {
        for (const auto& [key, value] : *table) read_key(block, original_name(std::string(key.str())), value);
      }
    }
  }

  void read_override(const std::string& text) {
    const auto equals = text.find('=');
    const auto dot = text.substr(0, equals).find('.');
    if (equals == std::string::npos) {
      return errors_.add_override(shortened(text) + ": an override has the form block.key=value");
    }
    const std::string raw = trimmed(text.substr(equals + 1));
    if (dot == std::string::npos) {
      const std::string key = trimmed(text.substr(0, equals));
      return errors_.add_override(shortened(key) + " = " + shortened(raw) + ": a block is missing: " + unknown_key("", key));
    }
    const std::string block = trimmed(text.substr(0, dot));
    const std::string key = trimmed(text.substr(dot + 1, equals - dot - 1));
    const std::string start = shortened(block) + "." + shortened(key) + " = " + shortened(raw) + ": ";
    if (!is_block(block)) return errors_.add_override(start + unknown_block(block));
    const Entry* entry = find_entry(block, key);
    if (entry == nullptr) return errors_.add_override(start + unknown_key(block, key));
    if (const SweepKey* swept = sweep_.find(entry->name())) {
      return errors_.add_override(start + "is swept over at " + swept->origin +
                                  "; leave the override out, or take the key out of [sweep]");
    }
    if (!is_utf8(raw)) {
      // It would be stored with the deck in every checkpoint, and none could be read again.
      return errors_.add_override(start + "is not UTF-8; write it in UTF-8 (a file or a folder of such a name can be reached " +
                                  "through a symbolic link of another)");
    }
    if (deck_.origins[entry->name()] == command_line) return errors_.add_override(start + "repeated key; give it once");
    const Reading reading = read_override_value(raw, *entry);
    deck_.origins[entry->name()] = command_line;
    if (!reading.value) return errors_.add_override(start + reading.problem + allowed(*entry));
    entry->set(deck_, *reading.value);
  }

  SweepDeck take() { return {std::move(deck_), std::move(sweep_)}; }

 private:
  static constexpr const char* command_line = "command line";

  static bool is_block(const std::string& name) {
    const auto& blocks = schema_blocks();
    return std::any_of(blocks.begin(), blocks.end(), [&name](const BlockDoc& block) { return block.name == name; });
  }

  static std::int64_t line_of(const toml::node& node) { return node.source().begin.line; }

  static std::string trimmed(const std::string& text) {
    const auto first = text.find_first_not_of(" \t");
    return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
  }

  void outside_a_block(const std::string& name, const toml::node& node) {
    if (is_block(name)) {
      errors_.add(line_of(node), name + ": is a block: write [" + name + "] and its keys below");
    } else {
      errors_.add(line_of(node), name + " = " + shown(node) + ": is outside any block: " + unknown_key("", name));
    }
  }

  void read_key(const std::string& block, const std::string& key, const toml::node& node) {
    const std::string start = block + "." + key + " = " + shown(node) + ": ";
    const Entry* entry = find_entry(block, key);
    if (entry == nullptr) return errors_.add(line_of(node), start + unknown_key(block, key));
    std::string& origin = deck_.origins[entry->name()];
    if (!origin.empty()) return errors_.add(line_of(node), start + "repeated key, also at " + origin);
    origin = file_name_ + ":" + std::to_string(line_of(node));
    const Reading reading = read_value(node, *entry);
    if (!reading.value) return errors_.add(line_of(node), start + reading.problem + allowed(*entry));
    entry->set(deck_, *reading.value);
  }

  // A string key takes the text as it is unless it is a quoted string: names such as 1f1b and true need no quotes.
  static Reading read_override_value(const std::string& raw, const Entry& entry) {
    try {
      const toml::table parsed = toml::parse("value = " + raw);
      const toml::node* node = parsed.size() == 1 ? parsed.get("value") : nullptr;
      if (node != nullptr && (entry.type != Type::text || node->is_string())) return read_value(*node, entry);
    } catch (const toml::parse_error&) {
      // Not TOML: a bare word.
    }
    return entry.type == Type::text ? read_text(raw, entry) : wrong_type(entry, raw.empty() ? "empty" : "a word");
  }

  std::string file_name_;
  Errors& errors_;
  Deck deck_;
  Sweep sweep_;
};

}  // namespace

SweepDeck read_sweep_deck(const std::string& text, const std::string& file_name, const std::vector<std::string>& overrides) {
  Errors errors(file_name);
  Reader reader(file_name, errors);
  reader.read_file(parse_toml(text, errors));
  for (const std::string& override_text : overrides) reader.read_override(override_text);
  errors.throw_if_any();
  return reader.take();
}

Deck read_deck(const std::string& text, const std::string& file_name, const std::vector<std::string>& overrides) {
  return read_sweep_deck(text, file_name, overrides).deck;
}

}  // namespace minipipe::core
