#include "core/deck/print.hpp"
#include "core/deck/restart.hpp"
#include "unit_tests/core/deck/support.hpp"

namespace minipipe::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Deck with(const std::vector<std::string>& overrides) { return read_deck("", "d.toml", overrides); }

std::string restart_error(const std::vector<std::string>& overrides) {
  return error_of([&] { check_restart(Deck(), with(overrides)); });
}

TEST(Restart, TheSameDeckHasNoChanges) {
  const Deck deck = with({"run.seed=7", "schedule.partition=[4,4]"});
  EXPECT_THAT(check_restart(read_deck(print_deck(deck), "stored"), deck), IsEmpty());
}

TEST(Restart, MarkedKeysMayChange) {
  for (const char* setting : {"run.name=b",
                              "run.grace=1",
                              "run.watchdog=0",
                              "data.train=b",
                              "data.validation=b",
                              "output.evaluation_interval=1",
                              "output.evaluation_batches=1",
                              "output.log_interval=1",
                              "checkpoint.interval=1",
                              "checkpoint.keep=1",
                              "schedule.partition=[4,4]",
                              "parallel.stages=2",
                              "parallel.mode=sdp",
                              "parallel.bucket_mb=1",
                              "parallel.fsdp_reduce=window",
                              "sdp.unit=neuron",
                              "sdp.neuron_groups=4",
                              "sdp.coverage=0.5",
                              "sdp.masking=backward",
                              "sdp.generator=random",
                              "sdp.seed=2",
                              "sdp.sync=parameter",
                              "sdp.period=2",
                              "sdp.refresh=2",
                              "sdp.fsdp=true",
                              "emulate.jitter=0.5",
                              "emulate.enabled=true"}) {
    EXPECT_EQ(check_restart(Deck(), with({setting})).size(), 1U) << setting;
  }
}

TEST(Restart, ChangesThatSayNothingAreNotTold) {
  for (const char* setting : {"run.time_limit=9", "run.resume=latest", "output.directory=b", "output.progress=none"}) {
    EXPECT_THAT(check_restart(Deck(), with({setting})), IsEmpty()) << setting;
  }
}

TEST(Restart, StepsMayGrowAndTheUserIsTold) {
  EXPECT_THAT(check_restart(Deck(), with({"run.steps=80"})),
              ElementsAre(StartsWith("run.steps: 40 -> 80 (the learning-rate schedule")));
  EXPECT_THAT(restart_error({"run.steps=20"}), HasSubstr("run.steps: 40 -> 20 (may only grow"));
}

// What does not fit into memory goes on with recomputation, which changes no number where forward and backward have the same
// weights.
TEST(Restart, RecomputationMayChange) {
  for (const std::string schedule : {"schedule.name=1f1b", "schedule.name=pipedream"}) {
    EXPECT_THAT(check_restart(with({schedule}), with({schedule, "train.recompute=block"})),
                ElementsAre("train.recompute: \"none\" -> \"block\""));
  }
  EXPECT_THAT(check_restart(Deck(), with({"train.recompute=block"})), ElementsAre(HasSubstr("losses differ")));
}

// Deck(): 8 microbatches on one replica.
TEST(Restart, AnUpdateCoversAsManyMicrobatchesAsBefore) {
  EXPECT_THAT(check_restart(Deck(), with({"parallel.data=2", "train.microbatches=4"})),
              ElementsAre("train.microbatches: 8 -> 4", "parallel.data: 1 -> 2"));
  EXPECT_THAT(
      restart_error({"parallel.data=2"}),
      HasSubstr("parallel.data: 1 -> 2 (an update would have 16 microbatches, train.microbatches x parallel.data, not 8 as "
                "before, and data would be repeated or skipped: set train.microbatches = 4)"));
  EXPECT_THAT(restart_error({"train.microbatches=4"}), HasSubstr("set train.microbatches = 8)"));
  EXPECT_THAT(restart_error({"parallel.data=3"}), HasSubstr("choose a parallel.data that divides 8"));
  for (const std::vector<std::string>& other : {std::vector<std::string>{"parallel.data=3"}, {"train.microbatches=4"}}) {
    EXPECT_THAT(check_restart(Deck(), with(other), CheckpointUse::evaluate), IsEmpty());
    EXPECT_THAT(check_restart(Deck(), with(other), CheckpointUse::evaluate_next_batch), IsEmpty());
  }
}

TEST(Restart, AnEvaluationComparesTheModelOnly) {
  for (const char* setting :
       {"schedule.name=1f1b", "schedule.partition=[4,4]", "precision.compute=bf16", "train.learning_rate=0.5",
        "train.optimizer=muon", "run.steps=20", "model.dropout=0.5", "output.log_interval=1", "data.validation=b"}) {
    for (const auto use : {CheckpointUse::evaluate, CheckpointUse::evaluate_next_batch}) {
      EXPECT_THAT(check_restart(Deck(), with({setting}), use), IsEmpty()) << setting;
    }
  }
  const std::string error = error_of([] {
    check_restart(Deck(), with({"model.heads=2", "model.layers=9", "schedule.name=1f1b"}), CheckpointUse::evaluate);
  });
  EXPECT_THAT(error, HasSubstr("model.layers: 8 -> 9"));
  EXPECT_THAT(error, HasSubstr("model.heads: 4 -> 2"));
  EXPECT_THAT(error, HasSubstr("Evaluate with the stored values"));
  EXPECT_THAT(error, Not(HasSubstr("schedule.name")));
  EXPECT_THAT(error, Not(HasSubstr("run.resume")));
}

TEST(Restart, TheNextBatchNeedsThePlaceInTheTrainingData) {
  for (const char* setting : {"run.seed=2", "train.sequence=8", "train.microbatch_size=3"}) {
    EXPECT_THAT(check_restart(Deck(), with({setting}), CheckpointUse::evaluate), IsEmpty()) << setting;
    EXPECT_THAT(error_of([&] { check_restart(Deck(), with({setting}), CheckpointUse::evaluate_next_batch); }),
                HasSubstr("or the next batch"))
        << setting;
  }
}

TEST(Restart, OtherKeysMayNot) {
  for (const char* setting :
       {"run.seed=2", "model.layers=9", "model.width=64", "model.dropout=0.5", "train.sequence=8", "train.microbatches=4",
        "train.learning_rate=0.5", "train.warmup_steps=1", "train.beta2=0.5", "train.clip=stage", "schedule.name=1f1b",
        "schedule.order=dynamic", "schedule.synchronous_updates=1", "schedule.extra_in_flight=1", "precision.compute=bf16"}) {
    EXPECT_THAT(restart_error({setting}), HasSubstr("may not change at a restart")) << setting;
  }
}

TEST(Restart, ErrorsListKeyOldAndNewValueAllAtOnce) {
  const std::string error = restart_error({"run.seed=2", "train.learning_rate=0.5", "schedule.name=1f1b", "run.name=other"});
  EXPECT_THAT(error, HasSubstr("run.seed: 1 -> 2\n"));
  EXPECT_THAT(error, HasSubstr("train.learning_rate: 0.001 -> 0.5\n"));
  EXPECT_THAT(error, HasSubstr("schedule.name: \"paci\" -> \"1f1b\"\n"));
  EXPECT_THAT(error, Not(HasSubstr("run.name")));
}

}  // namespace
}  // namespace minipipe::core
