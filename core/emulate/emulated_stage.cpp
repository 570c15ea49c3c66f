#include "core/emulate/emulated_stage.hpp"

#include <string>
#include <utility>

#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

enum DrawKind : std::uint64_t { draw_forward, draw_backward, draw_input, draw_weight, draw_update };

// SplitMix64's output function (Steele, Lea, Flood, OOPSLA 2014): spreads every input bit over the word.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void require_not_negative(double value, const char* key) {
  if (!(value >= 0)) {
    throw InputError(std::string(key) + " = " + std::to_string(value) + ": must be 0 or more");
  }
}

}  // namespace

EmulatedStage::EmulatedStage(const EmulatedStageOptions& options, std::function<void(double)> sleep)
    : options_(options), sleep_(std::move(sleep)) {
  require_not_negative(options_.forward_ms, "emulate.forward_ms");
  require_not_negative(options_.input_ms, "emulate.stage_input_ms");
  require_not_negative(options_.weight_ms, "emulate.stage_weight_ms");
  require_not_negative(options_.update_ms, "emulate.update_ms");
  if (!(options_.jitter >= 0 && options_.jitter < 1)) {
    throw InputError("emulate.jitter = " + std::to_string(options_.jitter) + ": must be at least 0 and below 1");
  }
}

double EmulatedStage::scaled_s(double milliseconds, std::int64_t microbatch, std::uint64_t kind) const {
  const double seconds = milliseconds * 1e-3;
  if (options_.jitter == 0) {
    return seconds;
  }
  const std::uint64_t key =
      mix(mix(mix(mix(options_.seed) + static_cast<std::uint64_t>(options_.stage)) + static_cast<std::uint64_t>(microbatch)) +
          kind);
  const double uniform = static_cast<double>(key >> 11) * 0x1p-53;
  return seconds * (1 + options_.jitter * (2 * uniform - 1));
}

void EmulatedStage::forward(std::int64_t microbatch, int, int, int) {
  sleep_(scaled_s(options_.forward_ms, microbatch, draw_forward));
  losses_ += options_.last ? 1 : 0;
}

void EmulatedStage::backward(std::int64_t microbatch, int, int, int) {
  sleep_(scaled_s(options_.input_ms + options_.weight_ms, microbatch, draw_backward));
}

void EmulatedStage::backward_input(std::int64_t microbatch, int, int, int) {
  sleep_(scaled_s(options_.input_ms, microbatch, draw_input));
}

void EmulatedStage::backward_weight(std::int64_t microbatch, int) {
  sleep_(scaled_s(options_.weight_ms, microbatch, draw_weight));
}

void EmulatedStage::update(std::int64_t update) {
  if (options_.update_ms > 0) {
    sleep_(scaled_s(options_.update_ms, update, draw_update));
  }
}

std::int64_t EmulatedStage::take_loss_count() { return std::exchange(losses_, 0); }

}  // namespace minipipe::core
