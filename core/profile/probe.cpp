#include "core/profile/probe.hpp"

#include <algorithm>

#include "core/comm/message_buffers.hpp"
#include "core/comm/mpi_error.hpp"
#include "core/kernels/initialise.hpp"
#include "core/model/kokkos_stage.hpp"
#include "core/profile/probe_stages.hpp"
#include "core/profile/trimmed_mean.hpp"
#include "core/train/options.hpp"

namespace minipipe::core {

namespace {

constexpr double visit_seconds = 0.2;  // of measuring at a visit of a probe
constexpr int least_windows = 3;
constexpr int most_windows = 200;

Matrix<float> memory_of(const MessageBuffers& buffers) {
  const auto& view = buffers.device();
  return Matrix<float>(view.data(), view.extent(0), view.extent(1));
}

// The deck under 1F1B: what a layer costs does not depend on the schedule.
Deck plain(Deck deck) {
  deck.schedule.name = "1f1b";
  deck.schedule.chunks = 1;
  return deck;
}

// A stage with message memory that nobody sends from or to.
class Probe {
 public:
  Probe(const Deck& deck, const ProbePlan& plan, BatchSource& source)
      : slots_(static_cast<int>(probe_options(deck, plan).activation_slots)),
        window_(deck.train.microbatches),
        split_(plan.split_backward),
        floats_(message_floats(deck)),
        activation_in_("activation_in", slots_, floats_),
        activation_out_("activation_out", slots_, floats_),
        gradient_in_("gradient_in", slots_, floats_),
        gradient_out_("gradient_out", slots_, floats_),
        stage_(options_for(deck, plan), source) {
    // Tokens as different as those of a run: the same ones would all go to the same experts of a mixture. Gradients as small:
    // denormal numbers would be slow, zeros perhaps fast.
    fill(activation_in_, 1.0, deck.run.seed, 0);
    fill(gradient_in_, 1e-4, deck.run.seed, 1);
    fence(ExecutionSpace(), "before another instance reads what was filled in");
  }

  // One update's microbatches, at most `slots_` in flight.
  void window(ProbeSamples& samples) {
    const std::int64_t end = next_ + window_;
    std::int64_t backward = next_;
    for (std::int64_t forward = next_; backward < end;) {
      if (forward < end && forward - backward < slots_) {
        one_forward(forward++, samples);
        if (forward < end && forward - backward < slots_) continue;
      }
      one_backward(backward++, samples);
    }
    next_ = end;
    timed(samples.update, [&] {
      stage_.update(updates_++);
      stage_.complete_output();
    });
    stage_.take_losses();
    stage_.take_gradient_squares();
  }

 private:
  KokkosStageOptions options_for(const Deck& deck, const ProbePlan& plan) {
    KokkosStageOptions options = probe_options(deck, plan);
    options.messages = {memory_of(activation_in_), memory_of(activation_out_), memory_of(gradient_in_),
                        memory_of(gradient_out_)};
    return options;
  }

  static void fill(const MessageBuffers& buffers, double deviation, std::int64_t seed, std::uint64_t number) {
    const auto& view = buffers.device();
    const Vector<float> values(view.data(), view.size());
    fill_normal<float>(ExecutionSpace(), values, deviation, static_cast<std::uint64_t>(seed), number);
  }

  template <class Work>
  static void timed(std::vector<double>& seconds, Work&& work) {
    const double begin = MPI_Wtime();
    work();
    seconds.push_back(MPI_Wtime() - begin);
  }

  void one_forward(std::int64_t microbatch, ProbeSamples& samples) {
    const int slot = static_cast<int>(microbatch % slots_);
    timed(samples.forward, [&] {
      stage_.forward(microbatch, slot, slot, slot);
      stage_.complete_output();
    });
  }

  void one_backward(std::int64_t microbatch, ProbeSamples& samples) {
    const int slot = static_cast<int>(microbatch % slots_);
    if (!split_) {
      timed(samples.backward, [&] {
        stage_.backward(microbatch, slot, slot, slot);
        stage_.complete_output();
      });
      return;
    }
    timed(samples.backward_input, [&] {
      stage_.backward_input(microbatch, slot, slot, slot);
      stage_.complete_output();
    });
    timed(samples.backward_weight, [&] {
      stage_.backward_weight(microbatch, slot);
      stage_.complete_output();
    });
  }

  int slots_;
  std::int64_t window_;
  bool split_;
  std::int64_t floats_;
  MessageBuffers activation_in_, activation_out_, gradient_in_, gradient_out_;
  KokkosStage stage_;
  std::int64_t next_ = 0;
  std::int64_t updates_ = 0;
};

}  // namespace

KokkosStageOptions probe_options(const Deck& deck, const ProbePlan& plan) {
  KokkosStageOptions options = stage_options(plain(deck), stage_layers(deck, plan.stages), 0);
  options.layers = plan.layers;
  options.model = with_layers(options.model, plan.layers.first_block + plan.layers.blocks);
  options.split_backward = plan.split_backward;
  options.weight_rule = plan.weight_rule;
  options.weight_copies = 2;
  options.synchronous_updates = 0;
  return options;
}

ActionSeconds ProbeSamples::typical() const {
  return {trimmed_mean(forward), trimmed_mean(backward), trimmed_mean(backward_input), trimmed_mean(backward_weight),
          trimmed_mean(update)};
}

void run_probe(const Deck& deck, const ProbePlan& plan, BatchSource& source, MPI_Comm comm, ProbeSamples& samples,
               const std::function<void()>& beat) {
  Probe probe(deck, plan, source);
  ProbeSamples warm_up;
  probe.window(warm_up);
  check(MPI_Barrier(comm), "measuring together");
  const double begin = MPI_Wtime();
  probe.window(warm_up);
  const double window_s = MPI_Wtime() - begin;
  const int windows = static_cast<int>(std::clamp(visit_seconds / std::max(window_s, 1e-6), static_cast<double>(least_windows),
                                                  static_cast<double>(most_windows)));
  check(MPI_Barrier(comm), "measuring together");
  for (int w = 0; w < windows; ++w) {
    probe.window(samples);
    beat();
  }
  // A rank that is done does not leave the others a quieter machine than a run would.
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(comm, &request), "measuring together");
  ProbeSamples rest;
  for (int done = 0; done == 0;) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "measuring together");
    if (done == 0) probe.window(rest);
  }
}

}  // namespace minipipe::core
