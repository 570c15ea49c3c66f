#include <gtest/gtest.h>

#include <vector>

#include "schedules/exec/executor.hpp"

namespace minipipe::schedules {
namespace {

// Channel ends that the test moves by hand, and a stage that notes which slots it was given.
struct HandSender final : SendChannel {
  explicit HandSender(int count) : done(static_cast<std::size_t>(count), false) {}
  int slots() const override { return static_cast<int>(done.size()); }
  void send(int slot) override {
    order.push_back(slot);
    done[static_cast<std::size_t>(slot)] = false;
  }
  bool sent(int slot) override { return done[static_cast<std::size_t>(slot)]; }
  std::vector<bool> done;
  std::vector<int> order;
};

struct HandReceiver final : ReceiveChannel {
  explicit HandReceiver(int count) : full(static_cast<std::size_t>(count), false) {}
  int slots() const override { return static_cast<int>(full.size()); }
  void post(int slot) override {
    order.push_back(slot);
    full[static_cast<std::size_t>(slot)] = false;
  }
  bool arrived(int slot) override { return full[static_cast<std::size_t>(slot)]; }
  std::vector<bool> full;
  std::vector<int> order;
};

struct NotingStage final : Stage {
  explicit NotingStage(HandSender& sender) : sender_(sender) {}
  void forward(std::int64_t, int slot, int input, int output) override {
    slots.push_back(slot);
    inputs.push_back(input);
    outputs.push_back(output);
  }
  void backward_input(std::int64_t, int slot, int, int) override { backward_slots.push_back(slot); }
  void backward_weight(std::int64_t, int) override {}
  void update(std::int64_t number) override { updates.push_back(number); }
  void complete_output() override { sends_at_completion.push_back(sender_.order.size()); }
  std::vector<int> slots, inputs, outputs, backward_slots;
  std::vector<std::int64_t> updates;
  std::vector<std::size_t> sends_at_completion;

 private:
  HandSender& sender_;
};

// Stage 1 of 3 with two slots on each end.
class ExecutorSlots : public testing::Test {
 protected:
  void start(ActionList list, std::int64_t end) {
    executor.set_policy(make_list_policy(std::move(list)));
    executor.begin_segment(end);
  }
  static ActionList forwards(int count) {
    ActionList list;
    for (int k = 0; k < count; ++k) list.push_back({Kind::forward, 1, k});
    return list;
  }
  // Lets all that can go on go on.
  void settle() {
    while (executor.advance()) {
    }
  }

  HandReceiver activation_in{2}, gradient_in{2};
  HandSender activation_out{2}, gradient_out{2};
  NotingStage stage{activation_out};
  Executor executor{1, 3, 3, stage, {&activation_in, &activation_out, &gradient_in, &gradient_out}, [] { return 0.0; }};
};

TEST_F(ExecutorSlots, ReceivesArePostedAheadAndSlotsGoRound) {
  EXPECT_EQ(activation_in.order, (std::vector<int>{0, 1}));
  EXPECT_EQ(gradient_in.order, (std::vector<int>{0, 1}));
  start(forwards(3), 3);
  settle();
  EXPECT_TRUE(stage.inputs.empty());
  activation_in.full[1] = true;  // the second message first: the stage waits for the first
  settle();
  EXPECT_TRUE(stage.inputs.empty());
  activation_in.full[0] = true;
  settle();
  EXPECT_EQ(stage.inputs, (std::vector<int>{0, 1}));
  EXPECT_EQ(stage.outputs, (std::vector<int>{0, 1}));
  EXPECT_EQ(activation_out.order, (std::vector<int>{0, 1}));
  EXPECT_EQ(activation_in.order, (std::vector<int>{0, 1, 0, 1}));          // posted again at once
  EXPECT_EQ(stage.sends_at_completion, (std::vector<std::size_t>{0, 1}));  // before the message is sent
}

TEST_F(ExecutorSlots, ForwardWaitsForASendSlot) {
  start(forwards(3), 3);
  activation_in.full = {true, true};
  settle();
  activation_in.full = {true, true};
  settle();
  EXPECT_EQ(stage.outputs.size(), 2u);
  activation_out.done[1] = true;  // the ring goes on with slot 0
  settle();
  EXPECT_EQ(stage.outputs.size(), 2u);
  activation_out.done[0] = true;
  settle();
  EXPECT_EQ(stage.outputs, (std::vector<int>{0, 1, 0}));
}

TEST_F(ExecutorSlots, ForwardWaitsForAnActivationSlot) {
  ActionList list = forwards(4);  // one more than there are slots, then a backward
  list.push_back({Kind::backward, 1, 0});
  start(list, 4);
  for (int round = 0; round < 4; ++round) {
    activation_in.full = {true, true};
    activation_out.done = {true, true};
    settle();
  }
  EXPECT_EQ(stage.slots, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(executor.peak_in_flight(), 3);
  EXPECT_NE(executor.describe().find("activation slots in use 3 of 3"), std::string::npos) << executor.describe();
}

TEST_F(ExecutorSlots, FinishedOnlyWhenSendsHaveCompleted) {
  start({{Kind::forward, 1, 0}, {Kind::backward, 1, 0}, {Kind::update, 1, 0}}, 1);
  activation_in.full[0] = true;
  settle();
  activation_out.done[0] = true;
  gradient_in.full[0] = true;
  settle();
  EXPECT_EQ(stage.updates, (std::vector<std::int64_t>{0}));
  EXPECT_FALSE(executor.finished());
  gradient_out.done[0] = true;
  settle();
  EXPECT_TRUE(executor.finished());
  const ActionLog log = executor.take_log();
  ASSERT_EQ(log.size(), 4u);
  EXPECT_EQ(log.back().action, (Action{Kind::drain, 1, 1}));
  EXPECT_EQ(log.back().version, 1);
  EXPECT_TRUE(executor.take_log().empty());
}

// Work that is only enqueued ends before the clock is read, in actions without messages, too.
TEST_F(ExecutorSlots, EveryActionIsCompleted) {
  start({{Kind::forward, 1, 0}, {Kind::backward_input, 1, 0}, {Kind::backward_weight, 1, 0}, {Kind::update, 1, 0}}, 1);
  activation_in.full[0] = true;
  gradient_in.full[0] = true;
  settle();
  EXPECT_EQ(stage.updates.size(), 1u);
  EXPECT_EQ(stage.sends_at_completion.size(), 4u);
}

}  // namespace
}  // namespace minipipe::schedules
