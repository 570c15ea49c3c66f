#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "schedules/check/checker.hpp"
#include "unit_tests/schedules/toy_pipeline.hpp"

namespace minipipe::schedules {
namespace {

// What the replicas of one stage know of each other: who has all gradients of an update, who has its new weights.
struct Meeting {
  int replicas = 1;
  std::map<std::int64_t, std::set<int>> gradients, weights;

  static bool met(std::map<std::int64_t, std::set<int>>& meetings, int replicas, std::int64_t update, int replica) {
    meetings[update].insert(replica);
    return static_cast<int>(meetings[update].size()) == replicas;
  }
};

// A toy that makes no update before the other replicas have come to it, and no pass before they have made it.
class MeetingStage final : public Stage {
 public:
  MeetingStage(Stage& toy, Meeting& meeting, int replica) : toy_(toy), meeting_(meeting), replica_(replica) {}

  void forward(std::int64_t microbatch, int slot, int input, int output) override {
    EXPECT_TRUE(ready_) << "a forward before the new weights were there";
    toy_.forward(microbatch, slot, input, output);
  }
  void backward_input(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) override {
    EXPECT_TRUE(ready_) << "a backward before the new weights were there";
    toy_.backward_input(microbatch, slot, gradient_input, gradient_output);
  }
  void backward_weight(std::int64_t microbatch, int slot) override { toy_.backward_weight(microbatch, slot); }
  bool gradients_ready(std::int64_t update) override {
    return Meeting::met(meeting_.gradients, meeting_.replicas, update, replica_);
  }
  void update(std::int64_t update) override {
    EXPECT_EQ(static_cast<int>(meeting_.gradients[update].size()), meeting_.replicas)
        << "update " << update << " came too early";
    toy_.update(update);
    updated_ = update;
    ready_ = false;
  }
  bool weights_ready() override {
    if (!ready_) ready_ = Meeting::met(meeting_.weights, meeting_.replicas, updated_, replica_);
    return ready_;
  }

 private:
  Stage& toy_;
  Meeting& meeting_;
  int replica_;
  std::int64_t updated_ = -1;
  bool ready_ = true;
};

struct Group {
  Group(const ScheduleOptions& schedule, int replicas) : meetings(schedule.stages) {
    for (Meeting& meeting : meetings) meeting.replicas = replicas;
    for (int r = 0; r < replicas; ++r) {
      pipelines.push_back(std::make_unique<ToyPipeline>(schedule, 2, [this, r](int stage, Stage& toy) {
        wrapped.push_back(std::make_unique<MeetingStage>(toy, meetings[stage], r));
        return wrapped.back().get();
      }));
    }
  }

  // Random turns over all stages of all replicas. False if nothing moves for a long time.
  bool run(std::int64_t microbatches, std::uint64_t seed) {
    std::vector<Executor*> executors;
    for (auto& pipeline : pipelines) {
      pipeline->begin_segment(microbatches);
      const auto all = pipeline->all();
      executors.insert(executors.end(), all.begin(), all.end());
    }
    std::mt19937_64 random(seed);
    for (int idle = 0; idle < 10000; ++idle) {
      if (executors[random() % executors.size()]->advance()) idle = 0;
      if (std::all_of(executors.begin(), executors.end(), [](Executor* e) { return e->finished(); })) return true;
    }
    return false;
  }

  std::vector<Meeting> meetings;
  std::vector<std::unique_ptr<MeetingStage>> wrapped;
  std::vector<std::unique_ptr<ToyPipeline>> pipelines;
};

TEST(ExecutorReplicas, WaitForEachOtherAtUpdatesAndNeverForEver) {
  for (const char* name : {"1f1b", "gpipe", "paci", "zb-h1", "interleaved"}) {
    for (int stages : {1, 2, 4}) {
      for (std::int64_t window : {1, 2, 5}) {
        ScheduleOptions schedule;
        schedule.name = name;
        schedule.stages = stages;
        schedule.window = window;
        schedule.order = Order::dynamic;
        schedule.chunks = schedule.name == "interleaved" && stages > 1 ? 2 : 1;
        for (std::uint64_t seed = 0; seed < 4; ++seed) {
          const std::int64_t microbatches = 6 * window;
          Group group(schedule, 3);
          ASSERT_TRUE(group.run(microbatches, seed)) << name << " N=" << stages << " m=" << window << " seed " << seed;
          for (auto& pipeline : group.pipelines) {
            const CheckReport report = check(pipeline->collect_logs(), schedule, {0, microbatches, 0, {}});
            EXPECT_TRUE(report.ok()) << report.problems.front();
          }
        }
      }
    }
  }
}

TEST(ExecutorReplicas, SecondsOfWaitingAreToldApart) {
  ScheduleOptions schedule;
  schedule.name = "1f1b";
  schedule.stages = 1;
  schedule.window = 2;
  Group group(schedule, 2);
  for (auto& pipeline : group.pipelines) pipeline->begin_segment(4);
  Executor& first = *group.pipelines[0]->executors[0];
  Executor& second = *group.pipelines[1]->executors[0];
  for (int turn = 0; turn < 20; ++turn) first.advance();
  EXPECT_EQ(first.state().backwards, 2);
  EXPECT_EQ(first.state().updates, 0) << "the other replica has not begun";
  EXPECT_GT(first.seconds().exchange, 10.0);
  const std::string text = first.describe();
  EXPECT_NE(text.find("waiting for other replicas"), std::string::npos) << text;
  for (int turn = 0; turn < 50; ++turn) {
    second.advance();
    first.advance();
  }
  EXPECT_TRUE(first.finished() && second.finished());
  EXPECT_EQ(first.state().updates, 2);
  for (const LoggedAction& entry : first.take_log()) EXPECT_EQ(entry.waited_s, 0) << "replicas send no messages between stages";
}

}  // namespace
}  // namespace minipipe::schedules
