#include "core/deck/emulated_times.hpp"
#include "unit_tests/core/deck/support.hpp"

namespace minipipe::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Rules, DefaultsAreConsistent) {
  for (const int ranks : {1, 2, 3, 4, 8}) EXPECT_EQ(rules_error({}, ranks), "") << ranks << " ranks";
}

TEST(Rules, StagesOfARun) {
  EXPECT_EQ(stages_of(read_deck("", "d.toml"), 4), 4);
  EXPECT_EQ(stages_of(read_deck("", "d.toml", {"parallel.data=2"}), 4), 2);
  EXPECT_EQ(stages_of(read_deck("", "d.toml", {"parallel.stages=3"}), 1), 3);
  EXPECT_EQ(stages_of(read_deck("", "d.toml", {"parallel.data=4"}), 2), 1);
}

TEST(Rules, ModelShape) {
  EXPECT_EQ(rules_error({"model.width=30"}),
            "command line: model.width = 30: is not a multiple of model.heads = 4; change one of them");
  EXPECT_THAT(rules_error({"train.sequence=129"}), HasSubstr("train.sequence = 129: is longer than model.context = 128"));
  EXPECT_EQ(rules_error({"train.sequence=128"}), "");
}

TEST(Rules, NameThePlaceInTheDeck) {
  const Deck deck = read_deck("[model]\nwidth = 30\n", "d.toml");
  EXPECT_THAT(error_of([&] { check_rules(deck, 1); }), HasSubstr("d.toml:2: model.width = 30: "));
}

TEST(Rules, LearningRateAndUpdates) {
  EXPECT_THAT(rules_error({"train.warmup_steps=41"}), HasSubstr("train.warmup_steps = 41: is more than run.steps = 40"));
  EXPECT_THAT(rules_error({"train.min_learning_rate=0.5"}), HasSubstr("is above train.learning_rate = 0.001"));
  EXPECT_THAT(rules_error({"schedule.synchronous_updates=41"}),
              HasSubstr("synchronous_updates = 41: is more than run.steps = 40"));
  EXPECT_EQ(rules_error({"train.warmup_steps=40", "train.min_learning_rate=1e-3", "schedule.synchronous_updates=40"}), "");
}

TEST(Rules, RanksAndStages) {
  EXPECT_THAT(rules_error({}, 9), HasSubstr("model.layers = 8: is fewer than the 9 stages"));
  EXPECT_THAT(
      rules_error({"parallel.stages=4"}, 3),
      HasSubstr(
          "parallel.stages = 4: 3 ranks do not fit parallel.data * parallel.stages = 1 * 4; start 4 ranks (mpirun -n 4)"));
  EXPECT_EQ(rules_error({"parallel.stages=4"}, 4), "");
  EXPECT_EQ(rules_error({"parallel.stages=4"}, 1), "") << "four stages in one process";
  EXPECT_THAT(rules_error({"parallel.data=2"}, 3), HasSubstr("3 ranks cannot be split into 2 replicas"));
  EXPECT_THAT(rules_error({"parallel.data=2", "parallel.stages=3"}, 4), HasSubstr("= 2 * 3; start 6 ranks"));
}

TEST(Rules, Partition) {
  EXPECT_EQ(rules_error({"schedule.partition=[3,5]"}, 2), "");
  EXPECT_THAT(rules_error({"schedule.partition=[3,5]"}, 3),
              HasSubstr("schedule.partition = [3, 5]: has length 2 for 3 stages"));
  EXPECT_THAT(rules_error({"schedule.partition=[3,4]"}, 2), HasSubstr("adds up to 7, not to model.layers = 8"));
}

TEST(Rules, GlobalNormNeedsABarrier) {
  EXPECT_THAT(rules_error({"train.clip=global"}, 2), HasSubstr("no global gradient norm without a barrier"));
  EXPECT_EQ(rules_error({"train.clip=global", "schedule.name=1f1b"}, 2), "");
  EXPECT_EQ(rules_error({"train.clip=global", "schedule.name=gpipe"}, 1), "");
  EXPECT_THAT(rules_error({"train.clip=global", "schedule.name=1f1b", "parallel.stages=2"}, 1),
              HasSubstr("2 stages in one process have no global gradient norm"));
  EXPECT_EQ(rules_error({"train.clip=stage", "parallel.stages=2"}, 1), "");
}

TEST(Rules, SizesBeyondAnInteger) {
  EXPECT_THAT(rules_error({"train.microbatch_size=134217729"}, 1),
              AllOf(HasSubstr("microbatch_size"), HasSubstr("more tokens than 2147483647")));
  EXPECT_THAT(rules_error({"schedule.name=interleaved", "schedule.chunks=1073741825"}, 4),
              AllOf(HasSubstr("chunks"), HasSubstr("lower it")));
  EXPECT_THAT(rules_error({"model.family=hybrid", "model.pattern=M", "model.layers=1", "model.state_expand=134217729"}, 1),
              AllOf(HasSubstr("state_expand"), HasSubstr("lower it")));
  EXPECT_THAT(rules_error({"model.family=hybrid", "model.pattern=M", "model.layers=1", "model.state_size=2147483647"}, 1),
              AllOf(HasSubstr("state_size"), HasSubstr("lower it")));
}

TEST(Rules, TiedEmbedding) {
  EXPECT_THAT(rules_error({"model.tied=true"}, 2), HasSubstr("embedding and head are on different stages (2 stages)"));
  EXPECT_EQ(rules_error({"model.tied=true"}, 1), "");
}

TEST(Rules, EmulatedStages) {
  EXPECT_THAT(rules_error({"emulate.enabled=true", "parallel.transport=nccl"}, 2), HasSubstr("use \"mpi\" with [emulate]"));
  EXPECT_THAT(rules_error({"emulate.enabled=true", "parallel.staging=device"}, 2), HasSubstr("use \"host\" with [emulate]"));
  EXPECT_THAT(rules_error({"emulate.stage_factors=[1,2]"}, 3), HasSubstr("has length 2 for 3 stages"));
  EXPECT_EQ(rules_error({"emulate.stage_factors=[1,2]"}, 2), "");
  for (const char* key : {"stage_forward_ms", "stage_input_ms", "stage_weight_ms", "stage_update_ms"}) {
    const std::string two = std::string("emulate.") + key + "=[1,2]";
    EXPECT_THAT(rules_error({two}, 3), AllOf(HasSubstr(key), HasSubstr("has length 2 for 3 stages")));
    EXPECT_EQ(rules_error({two}, 2), "");
  }
}

TEST(Rules, EmulatedTimes) {
  Deck deck;
  deck.emulate.forward_ms = 4;
  deck.emulate.backward_ms = 10;
  deck.emulate.stage_factors = {1, 3};
  EXPECT_EQ(emulated_times(deck, 1).forward, 12);
  EXPECT_EQ(emulated_times(deck, 1).input, 15);
  EXPECT_EQ(emulated_times(deck, 1).weight, 15);
  EXPECT_EQ(emulated_times(deck, 1).update, 0);
  // A list says all of its own kind of work: no factor is put on it.
  deck.emulate.stage_input_ms = {1, 2};
  deck.emulate.stage_update_ms = {0.5, 0.25};
  EXPECT_EQ(emulated_times(deck, 1).input, 2);
  EXPECT_EQ(emulated_times(deck, 1).weight, 15);
  EXPECT_EQ(emulated_times(deck, 1).update, 0.25);
}

TEST(Rules, EmulatedLinks) {
  EXPECT_THAT(rules_error({"emulate.link_latencies_ms=[1,2]"}, 2), HasSubstr("has length 2 for 1 link;"));
  EXPECT_EQ(rules_error({"emulate.link_latencies_ms=[1]"}, 2), "");
}

TEST(Rules, AWrittenPartitionMayLeaveTheEndsWithoutBlocks) {
  EXPECT_EQ(rules_error({"model.layers=2", "schedule.partition=[0,2,0]"}, 3), "");
  EXPECT_THAT(rules_error({"model.layers=2"}, 3), HasSubstr("is fewer than the 3 stages"));
}

TEST(Rules, Bf16IsAvailable) { EXPECT_EQ(rules_error({"precision.compute=bf16"}, 2), ""); }

TEST(Rules, LlamaAndRecomputationAreAvailable) {
  EXPECT_EQ(rules_error({"model.family=llama"}, 2), "");
  EXPECT_EQ(rules_error({"model.family=llama", "model.kv_heads=2", "model.hidden=300"}, 2), "");
  for (const char* schedule : {"schedule.name=1f1b", "schedule.name=zb-h1", "schedule.name=paci"}) {
    EXPECT_EQ(rules_error({"train.recompute=attention", schedule}, 2), "");
    EXPECT_EQ(rules_error({"train.recompute=block", schedule}, 2), "");
  }
}

TEST(Rules, KeyValueHeads) {
  EXPECT_THAT(rules_error({"model.family=llama", "model.kv_heads=3"}),
              HasSubstr("model.kv_heads = 3: does not divide model.heads = 4"));
  EXPECT_THAT(rules_error({"model.kv_heads=2"}), HasSubstr("model.kv_heads = 2: model.family = \"gpt2\" has as many"));
  EXPECT_EQ(rules_error({"model.kv_heads=4"}), "");
  EXPECT_THAT(rules_error({"model.family=llama", "model.width=12"}), HasSubstr("model.width / model.heads = 3 is odd"));
}

TEST(Rules, StagesPerRank) {
  EXPECT_EQ(rules_error({"schedule.name=interleaved", "schedule.chunks=2"}, 4), "");
  EXPECT_EQ(rules_error({"schedule.name=interleaved", "schedule.chunks=2", "parallel.stages=8"}, 4), "");
  EXPECT_THAT(rules_error({"schedule.name=interleaved", "schedule.chunks=2", "parallel.stages=8"}, 8),
              HasSubstr("8 ranks do not fit parallel.data * parallel.stages = 1 * 8 with 2 stages per rank; start 4 ranks"));
  EXPECT_THAT(rules_error({"schedule.name=zb-v", "parallel.stages=5"}, 1), HasSubstr("is not a multiple of the 2 stages"));
  EXPECT_THAT(rules_error({"schedule.name=interleaved", "schedule.chunks=3"}, 4), HasSubstr("is fewer than the 12 stages"));
  EXPECT_THAT(rules_error({"schedule.name=zb-v", "train.clip=global"}, 2), HasSubstr("needs one stage per rank"));
}

TEST(Rules, PlanFiles) {
  EXPECT_THAT(rules_error({"schedule.name=plan"}), HasSubstr("needs a CSV plan"));
  EXPECT_THAT(rules_error({"schedule.name=plan", "schedule.plan=absent.csv"}), HasSubstr("cannot be read"));
}

TEST(Rules, KeysThatOtherSchedulesDoNotUseAreAccepted) {
  const std::vector<std::string> keys{"schedule.order=dynamic", "schedule.ready=backward_first", "schedule.extra_in_flight=2",
                                      "schedule.synchronous_updates=3", "schedule.replay=log.csv"};
  for (const char* name : {"gpipe", "1f1b", "paci"}) {
    std::vector<std::string> all = keys;
    all.push_back(std::string("schedule.name=") + name);
    EXPECT_EQ(rules_error(all, 2), "") << name;
  }
}

TEST(Rules, AllAtOnce) {
  const std::string error = rules_error({"model.width=30", "train.sequence=500", "train.clip=global", "model.tied=true"}, 2);
  EXPECT_EQ(lines_in(error), 4U) << error;
}

}  // namespace
}  // namespace minipipe::core
