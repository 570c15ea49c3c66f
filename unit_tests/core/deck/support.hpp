#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/deck/parse.hpp"
#include "core/deck/rules.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

// The text of the InputError that `action` throws; empty if it throws none.
template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

inline std::string read_error(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return error_of([&] { read_deck(text, "d.toml", overrides); });
}

// What check_rules says about the default deck with these overrides.
inline std::string rules_error(const std::vector<std::string>& overrides, int ranks = 1) {
  const Deck deck = read_deck("", "d.toml", overrides);
  return error_of([&] { check_rules(deck, ranks); });
}

inline std::size_t lines_in(const std::string& text) {
  std::size_t lines = text.empty() ? 0 : 1;
  for (const char c : text) lines += c == '\n' ? 1 : 0;
  return lines;
}

}  // namespace minipipe::core
