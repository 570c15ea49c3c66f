// Pipelines of scalar toy stages, once in one process and once with a rank per stage, for comparison bit by bit.
#pragma once

#include <mpi.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "core/comm/delayed_channel.hpp"
#include "core/comm/mpi_channel.hpp"
#include "core/comm/mpi_error.hpp"
#include "schedules/exec/executor.hpp"
#include "schedules/exec/inprocess_channel.hpp"
#include "schedules/exec/run_together.hpp"
#include "schedules/exec/toy_stage.hpp"
#include "schedules/policy/policy.hpp"
#include "unit_tests/mpi/wait_until.hpp"

namespace minipipe::core {

constexpr int toy_message_slots = 2;

inline schedules::ToyStage::Options toy_options(const schedules::ScheduleOptions& options, int stage) {
  schedules::ToyStage::Options toy;
  toy.weight = 1.0 + 0.1 * stage;
  toy.learning_rate = 0.05;
  toy.window = options.window;
  toy.activation_slots = schedules::activation_slots(options, stage);
  toy.message_slots = toy_message_slots;
  toy.input = [](std::int64_t microbatch) { return 0.5 + 0.01 * static_cast<double>(microbatch % 17); };
  toy.last = stage + 1 == options.stages;
  return toy;
}

// Makes the policy of a stage; called once per run and stage.
using PolicyMaker = std::function<std::unique_ptr<schedules::Policy>(int stage)>;

// All stages on this rank. The segments are given by their ends.
class ToyInProcess {
 public:
  ToyInProcess(const schedules::ScheduleOptions& options, const PolicyMaker& make_policy,
               const std::vector<std::int64_t>& segment_ends) {
    const int n = options.stages;
    for (int s = 0; s < n; ++s) {
      stages.push_back(std::make_unique<schedules::ToyStage>(toy_options(options, s)));
    }
    std::vector<std::unique_ptr<schedules::InProcessChannel>> activations;
    std::vector<std::unique_ptr<schedules::InProcessChannel>> gradients;
    for (int s = 0; s + 1 < n; ++s) {
      auto* lower = stages[static_cast<std::size_t>(s)].get();
      auto* upper = stages[static_cast<std::size_t>(s) + 1].get();
      activations.push_back(
          std::make_unique<schedules::InProcessChannel>(toy_message_slots, toy_message_slots, [lower, upper](int from, int to) {
            upper->activation_in[static_cast<std::size_t>(to)] = lower->activation_out[static_cast<std::size_t>(from)];
          }));
      gradients.push_back(
          std::make_unique<schedules::InProcessChannel>(toy_message_slots, toy_message_slots, [lower, upper](int from, int to) {
            lower->gradient_in[static_cast<std::size_t>(to)] = upper->gradient_out[static_cast<std::size_t>(from)];
          }));
    }
    std::vector<std::unique_ptr<schedules::Executor>> executors;
    std::vector<schedules::Executor*> pointers;
    for (int s = 0; s < n; ++s) {
      const auto i = static_cast<std::size_t>(s);
      schedules::StageChannels channels;
      if (s > 0) {
        channels.activation_in = &activations[i - 1]->receiver();
        channels.gradient_out = &gradients[i - 1]->sender();
      }
      if (s + 1 < n) {
        channels.activation_out = &activations[i]->sender();
        channels.gradient_in = &gradients[i]->receiver();
      }
      executors.push_back(std::make_unique<schedules::Executor>(s, n, schedules::activation_slots(options, s), *stages[i],
                                                                channels, [] { return 0.0; }));
      executors.back()->set_policy(make_policy(s));
      pointers.push_back(executors.back().get());
    }
    for (const std::int64_t end : segment_ends) {
      for (auto& executor : executors) {
        executor->begin_segment(end);
      }
      schedules::run_together(pointers);
    }
  }

  std::vector<std::unique_ptr<schedules::ToyStage>> stages;
};

// A toy stage whose messages lie in message buffers: a double in the place of two floats, a third and fourth for a stamp.
class ToyOverBuffers final : public schedules::Stage {
 public:
  ToyOverBuffers(const schedules::ToyStage::Options& options, const MessageBuffers& activation_in,
                 const MessageBuffers& activation_out, const MessageBuffers& gradient_in, const MessageBuffers& gradient_out)
      : toy(options),
        activation_in_(activation_in),
        activation_out_(activation_out),
        gradient_in_(gradient_in),
        gradient_out_(gradient_out) {}

  void forward(std::int64_t microbatch, int slot, int input, int output) override {
    load(activation_in_, input, toy.activation_in);
    toy.forward(microbatch, slot, input, output);
    store(activation_out_, output, toy.activation_out);
  }
  void backward_input(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) override {
    load(gradient_in_, gradient_input, toy.gradient_in);
    toy.backward_input(microbatch, slot, gradient_input, gradient_output);
    store(gradient_out_, gradient_output, toy.gradient_out);
  }
  void backward_weight(std::int64_t microbatch, int slot) override { toy.backward_weight(microbatch, slot); }
  void update(std::int64_t number) override { toy.update(number); }

  schedules::ToyStage toy;

 private:
  static void load(const MessageBuffers& buffers, int slot, std::vector<double>& values) {
    if (slot >= 0) {
      std::memcpy(&values.at(static_cast<std::size_t>(slot)), buffers.transport_slot(slot) + 2, sizeof(double));
    }
  }
  static void store(const MessageBuffers& buffers, int slot, const std::vector<double>& values) {
    if (slot >= 0) {
      std::memcpy(buffers.transport_slot(slot) + 2, &values.at(static_cast<std::size_t>(slot)), sizeof(double));
    }
  }

  MessageBuffers activation_in_, activation_out_, gradient_in_, gradient_out_;
};

// The stage of this rank, its neighbours on the ranks next to it, with a latency on every edge if it is above 0.
class ToyOverMpi {
 public:
  ToyOverMpi(MPI_Comm parent, const schedules::ScheduleOptions& options, const PolicyMaker& make_policy,
             const std::vector<std::int64_t>& segment_ends, double latency_s) {
    using schedules::ReceiveChannel;
    using schedules::SendChannel;
    // Its own communicator: receives of an earlier run, posted ahead and not cancelled yet, must not take its messages.
    const Communicator owned = Communicator::duplicate(parent);
    const MPI_Comm comm = owned.get();
    const int rank = owned.rank();
    const MessageBuffers activation_in("activation_in", toy_message_slots, 4);
    const MessageBuffers activation_out("activation_out", toy_message_slots, 4);
    const MessageBuffers gradient_in("gradient_in", toy_message_slots, 4);
    const MessageBuffers gradient_out("gradient_out", toy_message_slots, 4);
    std::vector<std::unique_ptr<ReceiveChannel>> receives;
    std::vector<std::unique_ptr<SendChannel>> sends;
    const auto receive_end = [&](int peer, int tag, const MessageBuffers& buffers) -> ReceiveChannel* {
      receives.push_back(std::make_unique<MpiReceiveChannel>(comm, peer, tag, buffers));
      if (latency_s > 0) {
        receives.push_back(
            std::make_unique<DelayedChannel>(*receives.back(), latency_s, steady_seconds, stamp_reader(buffers)));
      }
      return receives.back().get();
    };
    const auto send_end = [&](int peer, int tag, const MessageBuffers& buffers) -> SendChannel* {
      sends.push_back(std::make_unique<MpiSendChannel>(comm, peer, tag, buffers));
      if (latency_s > 0) {
        sends.push_back(std::make_unique<StampedSendChannel>(*sends.back(), steady_seconds, stamp_writer(buffers)));
      }
      return sends.back().get();
    };
    schedules::StageChannels channels;
    if (rank > 0) {
      channels.activation_in = receive_end(rank - 1, edge_tag(rank - 1, Direction::activation), activation_in);
      channels.gradient_out = send_end(rank - 1, edge_tag(rank - 1, Direction::gradient), gradient_out);
    }
    if (rank + 1 < options.stages) {
      channels.activation_out = send_end(rank + 1, edge_tag(rank, Direction::activation), activation_out);
      channels.gradient_in = receive_end(rank + 1, edge_tag(rank, Direction::gradient), gradient_in);
    }
    stage =
        std::make_unique<ToyOverBuffers>(toy_options(options, rank), activation_in, activation_out, gradient_in, gradient_out);
    schedules::Executor executor(rank, options.stages, schedules::activation_slots(options, rank), *stage, channels,
                                 steady_seconds);
    executor.set_policy(make_policy(rank));
    for (const std::int64_t end : segment_ends) {
      executor.begin_segment(end);
      finished = wait_until([&] {
        while (executor.advance()) {
        }
        return executor.finished();
      });
      if (!finished) {
        description = executor.describe();
        return;
      }
    }
    for (const schedules::LoggedAction& logged : executor.take_log()) {
      if (is_compute(logged.action.kind) || logged.action.kind == schedules::Kind::update) {
        actions.push_back(logged.action);
      }
    }
    MPI_Barrier(comm);  // nobody's channels go away while a neighbour still sends
  }

  std::unique_ptr<ToyOverBuffers> stage;
  schedules::ActionList actions;
  bool finished = true;
  std::string description;
};

}  // namespace minipipe::core
