#include "schedules/exec/toy_stage.hpp"

#include <utility>

namespace minipipe::schedules {
namespace {
std::size_t index(int slot) { return static_cast<std::size_t>(slot); }
}  // namespace

ToyStage::ToyStage(Options options)
    : activation_in(index(options.message_slots)),
      activation_out(index(options.message_slots)),
      gradient_in(index(options.message_slots)),
      gradient_out(index(options.message_slots)),
      options_(std::move(options)),
      weight_(options_.weight),
      saved_(static_cast<std::size_t>(options_.activation_slots)) {}

void ToyStage::forward(std::int64_t microbatch, int slot, int input, int output) {
  Saved& saved = saved_.at(index(slot));
  saved.x = input < 0 ? options_.input(microbatch) : activation_in.at(index(input));
  saved.y = weight_ * saved.x;
  forward_versions_.push_back(version_);
  if (options_.last) losses_.push_back(0.5 * saved.y * saved.y);
  if (output >= 0) activation_out.at(index(output)) = saved.y;
}

void ToyStage::backward_input(std::int64_t, int slot, int gradient_input, int gradient_output) {
  Saved& saved = saved_.at(index(slot));
  saved.output_gradient = gradient_input < 0 ? saved.y : gradient_in.at(index(gradient_input));
  backward_versions_.push_back(version_);
  if (gradient_output >= 0) gradient_out.at(index(gradient_output)) = saved.output_gradient * weight_;
}

void ToyStage::backward_weight(std::int64_t, int slot) {
  const Saved& saved = saved_.at(index(slot));
  gradient_ += saved.output_gradient * saved.x;
}

void ToyStage::update(std::int64_t update) {
  weight_ -= options_.learning_rate * (gradient_ / static_cast<double>(options_.window));
  gradient_ = 0;
  version_ = update + 1;
}

}  // namespace minipipe::schedules
