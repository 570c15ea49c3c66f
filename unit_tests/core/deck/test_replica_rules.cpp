#include "core/deck/stage_mask_rules.hpp"
#include "core/model/mlp_rule.hpp"
#include "unit_tests/core/deck/support.hpp"

namespace minipipe::core {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Settings = std::vector<std::string>;

Settings operator+(Settings a, const Settings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Settings sdp4{"parallel.mode=sdp", "parallel.data=4", "sdp.coverage=0.5"};
const Settings averaged = sdp4 + Settings{"sdp.sync=parameter"};
const Settings backward = sdp4 + Settings{"sdp.masking=backward"};

// One broken rule, with this text.
void expect_refusal(const Settings& settings, int ranks, const std::string& text) {
  const std::string error = rules_error(settings, ranks);
  EXPECT_THAT(error, HasSubstr(text));
  EXPECT_EQ(lines_in(error), 1U) << error;
}

TEST(ReplicaRules, GoodCombinations) {
  const std::vector<Settings> decks{
      {"parallel.mode=ddp", "train.optimizer=muon", "schedule.name=pipedream"},
      {"parallel.mode=ddp", "schedule.order=dynamic", "train.clip=stage", "parallel.bucket_mb=0.5"},
      {"parallel.mode=zero1", "schedule.order=dynamic"},
      {"parallel.mode=fsdp", "parallel.fsdp_reduce=window", "schedule.name=1f1b", "schedule.order=dynamic"},
      {"parallel.mode=sdp"},
      sdp4,
      sdp4 + Settings{"sdp.fsdp=true", "sdp.unit=sublayer", "train.clip=stage"},
      sdp4 + Settings{"sdp.unit=neuron", "sdp.generator=random", "sdp.seed=5"},
      sdp4 + Settings{"train.optimizer=muon", "sdp.unit=sublayer"},
      backward + Settings{"sdp.refresh=3", "model.family=llama", "sdp.unit=neuron"},
      averaged + Settings{"sdp.period=4", "checkpoint.interval=20", "output.evaluation_interval=8"},
      averaged + Settings{"sdp.period=3", "run.steps=42", "checkpoint.interval=0", "output.evaluation_interval=0"},
  };
  for (const Settings& settings : decks) {
    const bool subnetworks = settings.size() > 1 && settings[1] == "parallel.data=4";
    const Settings four = subnetworks ? settings : settings + Settings{"parallel.data=4"};
    EXPECT_EQ(rules_error(four, 4), "") << ::testing::PrintToString(settings);
    EXPECT_EQ(rules_error(four, 8), "") << ::testing::PrintToString(settings);
  }
}

TEST(ReplicaRules, RanksAreReplicasTimesRanksOfAPipeline) {
  EXPECT_EQ(rules_error({"parallel.data=2"}, 2), "");
  EXPECT_EQ(rules_error({"parallel.data=2", "parallel.stages=3"}, 6), "");
  EXPECT_EQ(rules_error({"parallel.data=2", "parallel.stages=3"}, 2), "") << "three stages of each replica in one process";
  EXPECT_EQ(rules_error({"parallel.data=2", "schedule.name=zb-v"}, 4), "");
  for (const char* mode : {"fsdp", "sdp"}) {
    const std::string setting = std::string("parallel.mode=") + mode;
    EXPECT_EQ(rules_error({"parallel.data=2", "parallel.stages=3", setting}, 6), "");
    expect_refusal({"parallel.data=2", "parallel.stages=3", setting}, 2,
                   "with parallel.data = 2 replicas needs one stage per rank, not 3 stages of each replica on 1 rank; use "
                   "\"ddp\" or \"zero1\", or start 6 ranks");
    expect_refusal({"parallel.data=2", "schedule.name=zb-v", setting}, 4, "not 4 stages of each replica on 2 ranks");
  }
  EXPECT_EQ(rules_error({"parallel.data=2", "schedule.name=zb-v", "parallel.stages=4"}, 4), "");
  EXPECT_EQ(rules_error({"parallel.data=2", "schedule.name=zb-v", "parallel.stages=4"}, 2), "");
  expect_refusal({"parallel.data=2", "parallel.stages=3"}, 1,
                 "parallel.stages = 3: 1 rank do not fit parallel.data * parallel.stages = 2 * 3; start 6 ranks (mpirun -n 6), "
                 "or 2 for all stages of a replica in one process, or set parallel.stages = 0");
  expect_refusal({"parallel.data=2", "parallel.stages=3"}, 3, "3 ranks do not fit");
  expect_refusal({"parallel.data=4"}, 6, "parallel.data = 4: 6 ranks cannot be split into 4 replicas");
}

TEST(ReplicaRules, SubnetworkKeysUnderAnotherMode) {
  for (const char* mode : {"ddp", "zero1", "fsdp"}) {
    for (const char* setting :
         {"sdp.unit=neuron", "sdp.neuron_groups=4", "sdp.coverage=0.5", "sdp.masking=backward", "sdp.generator=random",
          "sdp.seed=2", "sdp.sync=parameter", "sdp.period=2", "sdp.refresh=2", "sdp.fsdp=true"}) {
      expect_refusal({std::string("parallel.mode=") + mode, setting}, 1,
                     std::string(": is for parallel.mode = \"sdp\", not \"") + mode + "\"; leave it out, or change the mode");
    }
  }
  EXPECT_EQ(rules_error({"sdp.unit=block", "sdp.coverage=1.0", "sdp.seed=1"}), "") << "the defaults written out";
}

TEST(ReplicaRules, NamesThePlaceOfAKey) {
  const Deck deck = read_deck("[sdp]\ncoverage = 0.5\n", "d.toml");
  EXPECT_EQ(error_of([&] { check_rules(deck, 1); }),
            "d.toml:2: sdp.coverage = 0.5: is for parallel.mode = \"sdp\", not \"ddp\"; leave it out, or change the mode");
}

TEST(ReplicaRules, ParameterAverages) {
  expect_refusal(averaged + Settings{"sdp.fsdp=true"}, 4,
                 "sdp.sync = \"parameter\": between averages holders have different parameters, which cannot be sharded over "
                 "them; use \"gradient\", or sdp.fsdp = false");
  expect_refusal(averaged + Settings{"sdp.masking=backward"}, 4,
                 "sdp.sync = \"parameter\": sdp.masking = \"backward\" needs gradients averaged");
  expect_refusal(averaged + Settings{"train.clip=stage"}, 4,
                 "train.clip = \"stage\": sdp.sync = \"parameter\" exchanges no gradients");
  expect_refusal(averaged + Settings{"train.clip=global", "schedule.name=1f1b"}, 4, "use \"none\", or sdp.sync = \"gradient\"");
  expect_refusal(averaged + Settings{"sdp.period=3", "checkpoint.interval=0"}, 4,
                 "run.steps = 40: is not a multiple of sdp.period = 3");
  expect_refusal(averaged + Settings{"sdp.period=3", "run.steps=42"}, 4,
                 "checkpoint.interval = 20: is not a multiple of sdp.period = 3, and between averages holders have different "
                 "parameters; change one of them, or use 0");
  expect_refusal(averaged + Settings{"sdp.period=5", "schedule.synchronous_updates=3"}, 4,
                 "schedule.synchronous_updates = 3: is not a multiple of sdp.period = 5");
  expect_refusal(averaged + Settings{"sdp.period=5", "output.evaluation_interval=4"}, 4,
                 "output.evaluation_interval = 4: is not a multiple of sdp.period = 5");
  expect_refusal(sdp4 + Settings{"sdp.period=2"}, 4, "sdp.period = 2: sdp.sync = \"gradient\" averages at every update; use 1");
}

TEST(ReplicaRules, BackwardMasking) {
  expect_refusal(sdp4 + Settings{"sdp.refresh=2"}, 4,
                 "sdp.refresh = 2: sdp.masking = \"forward\" has nothing to refresh: what is not held is absent; use 1, or "
                 "sdp.masking = \"backward\"");
  expect_refusal(backward + Settings{"sdp.fsdp=true"}, 4,
                 "sdp.fsdp = true: shards a unit over its holders, but sdp.masking = \"backward\" needs whole weights on every "
                 "replica; use false, or sdp.masking = \"forward\"");
}

TEST(ReplicaRules, GroupsOfNeuronsDivideTheHiddenWidth) {
  const Settings neurons = sdp4 + Settings{"sdp.unit=neuron", "sdp.neuron_groups=6"};
  expect_refusal(neurons, 4,
                 "sdp.neuron_groups = 6: does not divide the 512 hidden neurons of an MLP; change it or model.hidden");
  expect_refusal(neurons + Settings{"model.hidden=100"}, 4, "does not divide the 100 hidden neurons");
  EXPECT_EQ(rules_error(neurons + Settings{"model.hidden=600"}, 4), "");
  EXPECT_EQ(rules_error(sdp4 + Settings{"sdp.neuron_groups=6"}, 4), "") << "blocks have no groups";
  EXPECT_EQ(mlp_width("llama", 128, 0), 512);
  EXPECT_EQ(mlp_width("llama", 4096, 0), 11008) << "the published model of 7 billion parameters";
  EXPECT_EQ(mlp_width("gpt2", 768, 0), 3072);
  EXPECT_EQ(mlp_width("llama", 128, 300), 300);
}

TEST(ReplicaRules, MuonNeedsWholeMatrices) {
  const std::string text = "train.optimizer = \"muon\": needs whole matrices, equal on all replicas that hold them, and ";
  const Settings muon{"train.optimizer=muon"};
  expect_refusal(muon + Settings{"parallel.mode=zero1"}, 4,
                 text + "parallel.mode = \"zero1\" has parts of them; use \"adamw\" or \"nadam\", or parallel.mode = \"ddp\"");
  expect_refusal(muon + Settings{"parallel.mode=fsdp"}, 4, text + "parallel.mode = \"fsdp\" has parts of them");
  expect_refusal(sdp4 + muon + Settings{"sdp.fsdp=true"}, 4,
                 text + "sdp.fsdp = true has parts of them; use \"adamw\" or \"nadam\", or sdp.fsdp = false");
  expect_refusal(sdp4 + muon + Settings{"sdp.unit=neuron"}, 4,
                 text + "sdp.unit = \"neuron\" has parts of them; use \"adamw\" or \"nadam\", or sdp.unit = \"block\"");
}

TEST(ReplicaRules, OtherWeightsThanTheNewest) {
  for (const std::string schedule : {"pipedream", "pipedream-2bw", "pipemare"}) {
    for (const std::string mode : {"zero1", "fsdp", "sdp"}) {
      expect_refusal({"parallel.data=2", "parallel.mode=" + mode, "schedule.name=" + schedule}, 4,
                     "parallel.mode = \"" + mode + "\": schedule.name = \"" + schedule +
                         "\" computes with other weights than the newest, which only \"ddp\" keeps; use \"ddp\", or another "
                         "schedule");
    }
    EXPECT_EQ(rules_error({"parallel.data=2", "schedule.name=" + schedule}, 4), "");
  }
}

TEST(ReplicaRules, GatheredWeights) {
  const Settings fsdp{"parallel.data=4", "parallel.mode=fsdp"};
  const Settings sharded = sdp4 + Settings{"sdp.fsdp=true"};
  expect_refusal(
      fsdp + Settings{"schedule.order=dynamic"}, 8,
      "schedule.order = \"dynamic\": lets every replica react to its own arrivals, but with parallel.mode = \"fsdp\" "
      "all have to gather weights in one order; use \"fixed\"");
  expect_refusal(sharded + Settings{"schedule.order=dynamic"}, 8, "but with sdp.fsdp = true all have to gather");
  EXPECT_EQ(rules_error(sdp4 + Settings{"schedule.order=dynamic"}, 8), "");
  expect_refusal(fsdp + Settings{"model.tied=true"}, 4,
                 "model.tied = true: embedding and head use one matrix, which parallel.mode = \"fsdp\" would gather for two "
                 "layers; set it to false, or use another parallel.mode");
  expect_refusal(sharded + Settings{"model.tied=true"}, 4, "which sdp.fsdp = true would gather for two layers");
  EXPECT_EQ(rules_error(sdp4 + Settings{"model.tied=true"}, 4), "");
}

TEST(ReplicaRules, ClippingNeedsOneStagePerRank) {
  const Settings clipped{"train.clip=stage", "parallel.data=2"};
  expect_refusal(
      clipped + Settings{"parallel.stages=3"}, 2,
      "train.clip = \"stage\": with parallel.data = 2 replicas needs one stage per rank, not 3 stages of each replica "
      "on 1 rank; use \"none\", or start 6 ranks under a schedule with one stage per rank");
  expect_refusal(clipped + Settings{"schedule.name=zb-v"}, 4,
                 "needs one stage per rank, not 4 stages of each replica on 2 ranks");
  EXPECT_EQ(rules_error(clipped + Settings{"parallel.stages=3"}, 6), "");
  EXPECT_EQ(rules_error({"train.clip=stage", "schedule.name=zb-v"}, 2), "") << "one replica";
  const Settings global{"train.clip=global", "schedule.name=1f1b", "parallel.data=2"};
  EXPECT_EQ(rules_error(global, 4), "");
  EXPECT_EQ(rules_error(global, 2), "");
  expect_refusal(global + Settings{"parallel.stages=3"}, 2,
                 "3 stages in one process have no global gradient norm; use \"stage\" or \"none\", or start 6 ranks");
}

TEST(ReplicaRules, EmulationAndReplayHaveOneReplica) {
  expect_refusal({"parallel.data=2", "emulate.enabled=true"}, 2,
                 "emulate.enabled = true: emulated replicas would exchange nothing, and their times would say nothing; use "
                 "parallel.data = 1");
  expect_refusal({"parallel.data=2", "schedule.replay=log.csv"}, 2,
                 "schedule.replay = \"log.csv\": an action log tells the order of one replica; use parallel.data = 1, or \"\"");
  EXPECT_EQ(rules_error({"emulate.enabled=true", "schedule.replay=log.csv"}, 2), "");
}

TEST(ReplicaRules, CoverageOfOneStage) {
  EXPECT_EQ(rules_error({"parallel.mode=sdp", "parallel.data=4", "sdp.coverage=0.125"}, 4),
            "command line: sdp.coverage = 0.125: 4 replicas that each hold 1 of 8 units leave 4 held by nobody; the smallest "
            "coverage that works here is 0.375 (3 of 8 units each) [stage 0: 8 blocks, sdp.unit = \"block\"]");
  expect_refusal(
      {"parallel.mode=sdp", "parallel.data=4", "sdp.coverage=0.25", "sdp.unit=sublayer"}, 4,
      "each hold 4 of 16 units share too few of them: parts of the model would never meet; the smallest coverage that "
      "works here is 0.3125 (5 of 16 units each)");
  expect_refusal({"parallel.mode=sdp", "sdp.coverage=0.5"}, 1, "1 replica that holds 4 of 8 units leaves 4 held by nobody");
}

TEST(ReplicaRules, CoverageOfWrittenStages) {
  const std::string error =
      rules_error({"parallel.mode=sdp", "parallel.data=2", "sdp.coverage=0.5", "schedule.partition=[2,2,4]"}, 6);
  EXPECT_EQ(lines_in(error), 2U) << error;
  EXPECT_THAT(error, HasSubstr("each hold 1 of 2 units share too few of them"));
  EXPECT_THAT(error, HasSubstr("[stage 0: 2 blocks, sdp.unit = \"block\"]"));
  EXPECT_THAT(error, Not(HasSubstr("[stage 1:"))) << "as stage 0";
  EXPECT_THAT(error, HasSubstr("[stage 2: 4 blocks, sdp.unit = \"block\"]"));
  EXPECT_EQ(rules_error({"parallel.mode=sdp", "parallel.data=2", "sdp.coverage=0.67", "schedule.partition=[0,3,5]"}, 6), "")
      << "a stage without blocks has nothing to hold";
}

TEST(ReplicaRules, MasksOfABalancedPartition) {
  const Deck low = read_deck("", "d.toml", {"parallel.mode=sdp", "parallel.data=2", "sdp.coverage=0.5"});
  EXPECT_EQ(error_of([&] { check_rules(low, 4); }), "") << "check_rules does not know the blocks";
  EXPECT_THAT(error_of([&] {
                check_masks(low, {4, 4});
              }),
              HasSubstr("command line: sdp.coverage = 0.5: 2 replicas that each hold 2 of 4 units share too few of them"));
  EXPECT_EQ(error_of([&] { check_masks(read_deck("", "d.toml", {"parallel.mode=sdp", "parallel.data=2"}), {4, 4}); }), "");
  EXPECT_EQ(error_of([&] { check_masks(Deck(), {4, 4}); }), "");
}

TEST(ReplicaRules, UnitsOfAStage) {
  const auto options = [](const char* unit) {
    return stage_mask_options(read_deck("", "d.toml",
                                        sdp4 + Settings{std::string("sdp.unit=") + unit, "sdp.neuron_groups=16", "sdp.seed=9",
                                                        "sdp.generator=random"}),
                              3, 2);
  };
  EXPECT_EQ(options("block").units_per_block, 1);
  EXPECT_EQ(options("sublayer").units_per_block, 2);
  EXPECT_FALSE(options("sublayer").each_block);
  EXPECT_EQ(options("neuron").units_per_block, 16);
  EXPECT_TRUE(options("neuron").each_block);
  EXPECT_EQ(options("block").workers, 4);
  EXPECT_EQ(options("block").first_block, 3);
  EXPECT_EQ(options("block").blocks, 2);
  EXPECT_EQ(options("block").coverage, 0.5);
  EXPECT_EQ(options("block").seed, 9U);
  EXPECT_EQ(options("block").generator, schedules::MaskGenerator::random);
}

TEST(ReplicaRules, ValuesOfTheKeys) {
  EXPECT_THAT(read_error("[sdp]\ncoverage = 0.0\n"), HasSubstr("0 < value <= 1"));
  EXPECT_THAT(read_error("[sdp]\ncoverage = 1.5\n"), HasSubstr("0 < value <= 1"));
  EXPECT_THAT(read_error("[sdp]\nunit = \"head\"\n"), HasSubstr("block | sublayer | neuron"));
  EXPECT_THAT(read_error("[sdp]\nperiod = 0\n"), HasSubstr("allowed: 1 <= value <= 1000000000"));
  EXPECT_THAT(read_error("[parallel]\nbucket_mb = 0\n"), HasSubstr("> 0"));
  EXPECT_THAT(read_error("[parallel]\nfsdp_reduce = \"never\"\n"), HasSubstr("microbatch | window"));
  expect_refusal({"parallel.mode=zero1", "parallel.data=2", "parallel.fsdp_reduce=window"}, 2,
                 "parallel.fsdp_reduce = \"window\": is for gradients in shards");
  const Deck defaults;
  EXPECT_EQ(defaults.parallel.mode, "ddp");
  EXPECT_EQ(defaults.parallel.bucket_mb, 4.0);
  EXPECT_EQ(defaults.sdp.coverage, 1.0);
}

}  // namespace
}  // namespace minipipe::core
