#include "schedules/plan/action.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace minipipe::schedules {
namespace {

constexpr std::array<std::pair<Kind, std::string_view>, 10> kLetters{{
    {Kind::forward, "F"},
    {Kind::backward, "B"},
    {Kind::backward_input, "I"},
    {Kind::backward_weight, "W"},
    {Kind::update, "U"},
    {Kind::send_activation, "SEND_F"},
    {Kind::receive_activation, "RECV_F"},
    {Kind::send_gradient, "SEND_B"},
    {Kind::receive_gradient, "RECV_B"},
    {Kind::drain, "D"},
}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes a number from the front of `text`; false if there is none or it does not fit.
template <class Integer>
bool take_number(std::string_view& text, Integer& value) {
  if (text.empty() || !is_digit(text.front())) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

}  // namespace

std::string_view letters(Kind kind) {
  for (const auto& [known, text] : kLetters) {
    if (known == kind) return text;
  }
  return "?";
}

std::string to_text(const Action& action) {
  std::string text = std::to_string(action.stage);
  text += letters(action.kind);
  text += std::to_string(action.microbatch);
  return text;
}

std::optional<Action> parse_action(std::string_view cell) {
  Action action;
  if (!take_number(cell, action.stage)) return std::nullopt;
  const auto length = static_cast<std::size_t>(std::find_if(cell.begin(), cell.end(), is_digit) - cell.begin());
  const std::string_view name = cell.substr(0, length);
  const auto found = std::find_if(kLetters.begin(), kLetters.end(), [&](const auto& entry) { return entry.second == name; });
  if (found == kLetters.end()) return std::nullopt;
  action.kind = found->first;
  cell.remove_prefix(length);
  if (!take_number(cell, action.microbatch) || !cell.empty()) return std::nullopt;
  return action;
}

}  // namespace minipipe::schedules
