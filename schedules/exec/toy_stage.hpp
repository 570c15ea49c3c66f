#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedules/exec/stage.hpp"

namespace minipipe::schedules {

// One weight: y = w x, on the last stage with the loss y^2 / 2, trained by plain gradient descent on the mean over the window.
// The backward uses the saved input (last stage: also the saved output) and the weight of the moment, as PACI's does. All in
// double, so that the weight versions of a schedule can be checked exactly against a serial calculation.
class ToyStage final : public Stage {
 public:
  struct Options {
    double weight = 1;
    double learning_rate = 0.01;
    std::int64_t window = 1;
    std::int64_t activation_slots = 1;
    int message_slots = 1;
    std::function<double(std::int64_t microbatch)> input;  // first stage only
    bool last = false;
  };
  explicit ToyStage(Options options);

  void forward(std::int64_t microbatch, int slot, int input, int output) override;
  void backward_input(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) override;
  void backward_weight(std::int64_t microbatch, int slot) override;
  void update(std::int64_t update) override;

  double weight() const { return weight_; }
  // By microbatch in the order they came, over all segments.
  const std::vector<std::int64_t>& forward_versions() const { return forward_versions_; }
  const std::vector<std::int64_t>& backward_versions() const { return backward_versions_; }
  const std::vector<double>& losses() const { return losses_; }

  // Message slots, one number each; unused ones stay empty of meaning.
  std::vector<double> activation_in, activation_out, gradient_in, gradient_out;

 private:
  struct Saved {
    double x = 0;
    double y = 0;
    double output_gradient = 0;
  };
  Options options_;
  double weight_;
  double gradient_ = 0;
  std::int64_t version_ = 0;
  std::vector<Saved> saved_;
  std::vector<std::int64_t> forward_versions_, backward_versions_;
  std::vector<double> losses_;
};

}  // namespace minipipe::schedules
