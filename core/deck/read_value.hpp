#pragma once

#include <toml++/toml.h>

#include <optional>
#include <string>

#include "core/deck/errors.hpp"
#include "core/deck/schema.hpp"
#include "core/deck/sweep.hpp"

// What the reader of a deck's blocks and the reader of its [sweep] share; parse.cpp has the definitions.
namespace minipipe::core {

// The result of reading a value: the value, or what is wrong with it.
struct Reading {
  std::optional<Value> value;
  std::string problem;
};

// The value of a key, if the node has the key's type and lies within its limits.
Reading read_value(const toml::node& node, const Entry& entry);

// The value as the user wrote it, more or less.
std::string shown(const toml::node& node);

// "; allowed: ..." for the end of a message; empty if the key may have any value of its type.
std::string allowed(const Entry& entry);

// "unknown key; did you mean ...?": looks in the key's own block first for a slip of the pen, then for the same key in the
// other blocks.
std::string unknown_key(const std::string& block, const std::string& key);

// Reads the block; errors are added, all of them: unknown key, empty list, a value the key cannot have, zip of keys that are
// not swept or of lists of unequal length.
void read_sweep(const toml::table& block, const std::string& file_name, Errors& errors, Sweep& sweep);

}  // namespace minipipe::core
