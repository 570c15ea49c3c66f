#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace minipipe::schedules {

// What a stage can do. The letters in the text form are those torch.distributed.pipelining uses, plus U and D.
enum class Kind : std::uint8_t {
  forward,             // F
  backward,            // B: input gradient and weight gradient together
  backward_input,      // I
  backward_weight,     // W
  update,              // U: one local optimizer step; `microbatch` holds the update's number
  send_activation,     // SEND_F
  receive_activation,  // RECV_F
  send_gradient,       // SEND_B
  receive_gradient,    // RECV_B
  drain,               // D: nothing in flight on this stage; `microbatch` holds the number of microbatches done
};

struct Action {
  Kind kind = Kind::forward;
  int stage = 0;                // 0-based
  std::int64_t microbatch = 0;  // 0-based, counted over the whole run

  friend bool operator==(const Action&, const Action&) = default;
};

// A send or a receive.
constexpr bool is_message(Kind kind) {
  return kind == Kind::send_activation || kind == Kind::receive_activation || kind == Kind::send_gradient ||
         kind == Kind::receive_gradient;
}

// The letters of a kind: "F", "SEND_B", ...
std::string_view letters(Kind kind);

// "2F0": stage, letters, microbatch.
std::string to_text(const Action& action);

// Parses one cell of the text form; nothing if it is not one.
std::optional<Action> parse_action(std::string_view cell);

constexpr bool is_compute(Kind kind) {
  return kind == Kind::forward || kind == Kind::backward || kind == Kind::backward_input || kind == Kind::backward_weight;
}

}  // namespace minipipe::schedules
