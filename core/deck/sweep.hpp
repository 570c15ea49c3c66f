#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/deck/deck.hpp"
#include "core/deck/schema.hpp"

namespace minipipe::core {

// One line of the block [sweep]: "block.key" = [values].
struct SweepKey {
  const Entry* entry = nullptr;
  std::vector<Value> values;
  std::string origin;  // file:line
};

// The block [sweep]. Its axes are the keys in the order of the file; `zip` makes one axis of the keys of a group, at the place
// of the first of them: they move together. The cases are the product of the axes, numbered from 0: the first axis is the
// slowest. So a case that fails, or is left out, changes no other's number.
struct Sweep {
  std::vector<std::vector<SweepKey>> axes;  // one key each, or the keys of a group

  bool empty() const { return axes.empty(); }
  std::int64_t cases() const;  // 1 if empty
  const SweepKey* find(const std::string& name) const;
};

struct SweepDeck {
  Deck deck;  // without its sweep
  Sweep sweep;
};

// As read_deck, and the sweep. An override of a swept key is an error.
SweepDeck read_sweep_deck(const std::string& text, const std::string& file_name,
                          const std::vector<std::string>& overrides = {});

// The settings of one case. Its outputs go to output.directory/case_<number>, unless the sweep is over output.directory (then
// each case has a folder of its own: anything else is an error of read_sweep_deck).
// Throws InputError if there is no such case.
Deck case_of(const SweepDeck& deck, std::int64_t number);

// A line per case, fields separated by tabs: number, ranks that it needs (0: as many as are started), output folder, values
// ("block.key=value ..."). The first line names the fields and starts with '#'.
std::string list_cases(const SweepDeck& deck);

}  // namespace minipipe::core
