#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/deck/deck.hpp"

namespace minipipe::core {

// Any value a key can have. The order of the alternatives is that of Type.
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>>;

enum class Type { boolean, integer, real, text, integers, reals };

// "an integer", "a list of floats", ...
std::string_view type_name(Type type);

// The allowed values of a key: an interval (of each element, for a list) or a list of words.
struct Limits {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_excluded = false;
  bool high_excluded = false;
  std::vector<std::string> choices;

  bool contains(double value) const;
  // ">= 1", "0 <= value < 1", "fp32 | bf16"; empty if every value is allowed.
  std::string text() const;
};

// One row of the schema. The default is the one of a default-constructed Deck.
struct Entry {
  std::string block;
  std::string key;
  Type type = Type::boolean;
  Limits limits;
  bool may_change_at_restart = false;
  std::string doc;
  std::function<Value(const Deck&)> get;
  std::function<void(Deck&, const Value&)> set;  // the value must have the entry's type and lie within its limits

  std::string name() const { return block + "." + key; }
};

// Every key there is, block by block, in the order they are printed.
const std::vector<Entry>& schema();

// The blocks in the order of the schema, and one line on each.
struct BlockDoc {
  std::string name;
  std::string doc;
};
const std::vector<BlockDoc>& schema_blocks();

// The row of a key; null if there is none. The pointer stays valid.
const Entry* find_entry(std::string_view block, std::string_view key);

// The value as TOML text: floats with the fewest digits that read back to the same value, and with a decimal point.
std::string to_toml(const Value& value);

}  // namespace minipipe::core
