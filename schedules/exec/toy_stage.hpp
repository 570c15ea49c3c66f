#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "schedules/exec/stage.hpp"
#include "schedules/plan/action.hpp"

namespace minipipe::schedules {

// One weight: y = w x, on the last stage with the loss y^2 / 2, trained by plain gradient descent on the mean over the window.
// The backward uses the saved input (last stage: also the saved output) and the weight that the rule names; without a rule that
// of the moment, as PACI's does. All in double, so that the weight versions of a schedule can be checked exactly against a
// serial calculation.
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
    // Which version a pass uses (policy/versions.hpp), and how many versions are kept. RunError if a pass asks for another.
    std::function<std::int64_t(Kind kind, std::int64_t microbatch, std::int64_t now, std::int64_t forward)> version_used = {};
    std::int64_t weight_copies = 1;
  };
  explicit ToyStage(Options options);

  void forward(std::int64_t microbatch, int slot, int input, int output) override;
  void backward_input(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) override;
  void backward_weight(std::int64_t microbatch, int slot) override;
  void update(std::int64_t update) override;

  double weight() const { return copies_.back(); }
  // By microbatch in the order they came, over all segments.
  const std::vector<std::int64_t>& forward_versions() const { return forward_versions_; }
  const std::vector<std::int64_t>& backward_versions() const { return backward_versions_; }
  const std::vector<double>& losses() const { return losses_; }

  // Message slots, one number each; unused ones stay empty of meaning.
  std::vector<double> activation_in, activation_out, gradient_in, gradient_out;

 private:
  std::int64_t version_for(Kind kind, std::int64_t microbatch, std::int64_t forward) const;
  double weight_of(std::int64_t version) const;

  struct Saved {
    std::int64_t version = 0;  // of the forward
    double x = 0;
    double y = 0;
    double output_gradient = 0;
  };
  Options options_;
  std::deque<double> copies_;  // newest last
  double gradient_ = 0;
  std::int64_t version_ = 0;
  std::vector<Saved> saved_;
  std::vector<std::int64_t> forward_versions_, backward_versions_;
  std::vector<double> losses_;
};

}  // namespace minipipe::schedules
