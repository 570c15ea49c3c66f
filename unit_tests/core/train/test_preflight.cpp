#include <gtest/gtest.h>

#include <algorithm>

#include "core/deck/rules.hpp"
#include "core/train/predict.hpp"
#include "core/train/preflight.hpp"
#include "core/types/types.hpp"
#include "schedules/error.hpp"
#include "schedules/simulate/efficiency.hpp"
#include "unit_tests/core/train/decks.hpp"

namespace minipipe::core {
namespace {

struct Case {
  std::string name;
  int stages;
  int microbatches;
};

class EverySchedule : public ::testing::TestWithParam<Case> {};

TEST_P(EverySchedule, IsLegalFreeOfDeadlockAndWithinItsSlots) {
  const Case& c = GetParam();
  const Deck deck = tests::small_deck(
      {"schedule.name=" + c.name, "schedule.chunks=2", "train.microbatches=" + std::to_string(c.microbatches)});
  EXPECT_NO_THROW(check_schedule(deck, c.stages));
  const Preflight result = preflight(deck, c.stages);
  for (int stage = 0; stage < c.stages; ++stage) {
    EXPECT_LE(result.simulation.peak_in_flight[stage], schedules::activation_slots(schedule_options(deck, c.stages), stage));
  }
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const std::string& name : schedules::schedule_names()) {
    if (name == "plan") continue;
    for (const int stages : {2, 4, 8}) {
      for (const int microbatches : {1, 3, 8}) {
        if (name == "pipedream-2bw" && microbatches < stages) continue;
        result.push_back({name, stages, microbatches});
      }
    }
  }
  return result;
}

std::string name_of(const ::testing::TestParamInfo<Case>& instance) {
  const Case& c = instance.param;
  std::string name = c.name + "_" + std::to_string(c.stages) + "_" + std::to_string(c.microbatches);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Grid, EverySchedule, ::testing::ValuesIn(cases()), name_of);

TEST(Preflight, UtilisationOfFlushIsTheClosedForm) {
  const Deck deck = tests::small_deck({"schedule.name=1f1b"});
  EXPECT_NEAR(1 - preflight(deck, 4, 1).simulation.bubble_share, schedules::flush_efficiency(4, 4), 1e-12);
}

// A flush schedule does the same at every update, however many stages there are.
TEST(Preflight, FewUpdatesShowAFlushScheduleManyAnAsynchronousOne) {
  const auto updates = [](const std::string& name) {
    return preflight(tests::small_deck({"run.steps=10000", "train.microbatches=2", "schedule.name=" + name}), 8).updates;
  };
  EXPECT_LE(updates("1f1b"), 4);
  EXPECT_GE(updates("paci"), 4 * 8 / 2);
}

TEST(Preflight, EveryEmulatedLinkHasItsOwnLatency) {
  const Deck deck = tests::small_deck(
      {"emulate.enabled=true", "emulate.link_latencies_ms=[1.0, 0.0, 7.0]", "schedule.name=gpipe", "train.microbatches=1"});
  const double passes = 4 * (1e-3 + 2e-3);
  EXPECT_NEAR(preflight(deck, 4, 1).simulation.makespan, passes + 2 * (1e-3 + 7e-3), 1e-12);
  const auto options = schedule_options(deck, 4);
  const auto costs = emulated_costs(deck, 4);
  const auto measured = schedules::simulate(options, costs, 1).log;
  const auto end = [](const schedules::Log& log) { return log.ranks[0].back().end_s; };
  EXPECT_NEAR(end(predict(measured, options, costs)), end(measured), 1e-12);
}

TEST(Preflight, UpdatesAfterEveryBackwardMeanAWindowOfOne) {
  EXPECT_EQ(tests::small_deck({"schedule.name=pipedream"}).train.microbatches, 1);
  EXPECT_EQ(tests::small_deck({"schedule.name=async-1f1b"}).train.microbatches, 1);
  EXPECT_EQ(tests::small_deck({"schedule.name=paci"}).train.microbatches, 4);
}

TEST(Preflight, NoMoreSlotsThanMicrobatchesBetweenDrains) {
  const auto deck = [](const std::string& extra, const std::string& interval) {
    return tests::small_deck({"schedule.name=paci", "run.steps=40", "schedule.extra_in_flight=" + extra,
                              "checkpoint.interval=" + interval, "output.evaluation_interval=0"});
  };
  const auto slots = [](const Deck& of) { return schedules::activation_slots(schedule_options(of, 2), 0); };
  EXPECT_EQ(slots(deck("3", "10")), 2 + 3);
  EXPECT_EQ(slots(deck("39", "10")), 2 + 39);
  EXPECT_EQ(in_flight_note(deck("39", "10")), "");
  EXPECT_EQ(slots(deck("1000000", "10")), 2 + 39) << "ten updates of four microbatches, one of which is always admitted";
  EXPECT_EQ(slots(deck("1000000", "0")), 2 + 159) << "the whole run";
  EXPECT_NE(in_flight_note(deck("1000000", "10")).find("extra_in_flight = 1000000: the pipe drains after every 40 micro"),
            std::string::npos);
}

TEST(Preflight, LargePipesAreFilledTwiceAndNoMore) {
  EXPECT_EQ(steady_updates(false, 512, 1024), 4);
  EXPECT_EQ(steady_updates(true, 8, 8), 4 + 8);
  EXPECT_EQ(steady_updates(true, 8, 1), 4 + 8 * 8);
  EXPECT_EQ(steady_updates(true, 512, 1024), 2 + 2);
  EXPECT_EQ(steady_updates(true, 256, 1024), 2000000 / 256 / 1024);
  EXPECT_EQ(steady_updates(true, 4096, 1), 2 + 2 * 4096);
}

// ... which shows the same slots and gaps as many more.
TEST(Preflight, APipeFilledTwiceShowsItsGaps) {
  for (const std::string name : {"paci", "async-1f1b", "pipedream"}) {
    for (const int window : {1, 5, 16, 40}) {
      const Deck deck = tests::small_deck({"schedule.name=" + name, "run.steps=1000", "model.layers=16", "emulate.enabled=true",
                                           "emulate.stage_factors=[1,1.2,0.9,1.1,0.8,1,1,1.3]",
                                           "train.microbatches=" + std::to_string(window)});
      const std::int64_t used = deck.train.microbatches, fill = (8 + used - 1) / used;
      const Preflight few = preflight(deck, 8, 2 + 2 * fill), many = preflight(deck, 8, 4 + 8 * fill);
      EXPECT_EQ(few.simulation.peak_in_flight, many.simulation.peak_in_flight) << name << window;
      EXPECT_EQ(few.simulation.gap_max, many.simulation.gap_max) << name << window;
      EXPECT_TRUE(few.report.ok());
    }
  }
}

TEST(Preflight, MemoryOfAllReplicasIsThatOfEach) {
  for (const std::string mode : {"ddp", "zero1", "fsdp", "sdp"}) {
    const Deck deck = tests::small_deck({"parallel.data=5", "parallel.mode=" + mode, "sdp.coverage=0.5"});
    const auto replicas = planned_memory_by_replica(deck, 2);
    const auto ranks = planned_memory_by_rank(deck, 2);
    ASSERT_EQ(replicas.size(), 5U);
    for (int replica = 0; replica < 5; ++replica) {
      const auto alone = planned_memory_by_stage(deck, 2, replica);
      for (int stage = 0; stage < 2; ++stage) {
        EXPECT_EQ(replicas[replica][stage].categories(), alone[stage].categories()) << mode;
        EXPECT_EQ(ranks[2 * replica + stage].categories(), alone[stage].categories()) << mode;
      }
    }
  }
}

TEST(Preflight, SimulatesNoMoreThanItCan) {
  const Deck synchronous =
      tests::small_deck({"schedule.name=paci", "run.steps=900000000", "schedule.synchronous_updates=800000000"});
  const Preflight result = preflight(synchronous, 4);
  EXPECT_TRUE(result.report.ok());
  EXPECT_LE(result.updates * 4 * 4, schedules::most_simulated_passes);
  EXPECT_THROW(preflight(tests::small_deck({"train.microbatches=1000000"}), 16), InputError);
  EXPECT_THROW(preflight(tests::small_deck({"run.steps=900000000"}), 4, 900000000), InputError);
}

TEST(Preflight, LongDelaysUnderAdamWAreWarnedOf) {
  EXPECT_NE(delay_warning(tests::small_deck({"schedule.name=paci"}), 8).find("up to 2 updates old"), std::string::npos);
  EXPECT_EQ(delay_warning(tests::small_deck({"schedule.name=paci"}), 4), "") << "one update";
  EXPECT_EQ(delay_warning(tests::small_deck({"schedule.name=1f1b"}), 8), "");
  EXPECT_EQ(delay_warning(tests::small_deck({"schedule.name=paci", "schedule.synchronous_updates=5"}), 8), "");
  EXPECT_EQ(delay_warning(tests::small_deck({"schedule.name=paci", "train.optimizer=muon"}), 8), "");
}

TEST(Preflight, TransportsThatAreNotHereAreTold) {
  EXPECT_EQ(transport_problem(tests::small_deck({})), "");
  EXPECT_NO_THROW(check_transport(tests::small_deck({})));
  const Deck device = tests::small_deck({"parallel.staging=device"});
  const Deck nccl = tests::small_deck({"parallel.transport=nccl"});
  if (on_host) {
    EXPECT_NE(transport_problem(device).find("parallel.staging = \"device\": this minipipe computes on the host"),
              std::string::npos);
    EXPECT_THROW(check_transport(device), InputError);
    EXPECT_NE(transport_problem(nccl).find("parallel.transport = \"nccl\": this minipipe was built without NCCL"),
              std::string::npos);
    EXPECT_THROW(check_transport(nccl), InputError);
  } else {
    EXPECT_EQ(transport_problem(device), "");
  }
}

TEST(Preflight, MemoryCountsWeightVersionsAndMessages) {
  const Deck deck = tests::small_deck({"schedule.name=pipedream"});
  const auto memory = planned_memory_by_stage(deck, 4);
  EXPECT_EQ(memory[0].stage.weight_versions, 3 * memory[0].stage.parameters);
  EXPECT_EQ(memory[3].stage.weight_versions, 0U);
  const auto paci = planned_memory_by_stage(tests::small_deck({"schedule.name=paci"}), 4);
  EXPECT_EQ(paci[0].stage.weight_versions, 0U);
  // Four slots at both ends of stage 0's only edge, activations and gradients.
  EXPECT_EQ(paci[0].comm, 2 * 4 * static_cast<std::size_t>(message_floats(deck)) * sizeof(float));
}

TEST(Predict, AMeasuredLogOfEqualTimesIsPredictedExactly) {
  const Deck deck = tests::small_deck({"schedule.name=paci", "schedule.order=fixed"});
  const auto options = schedule_options(deck, 4);
  const auto measured = schedules::simulate(options, emulated_costs(deck, 4), 16).log;
  const auto predicted = predict(measured, options);
  ASSERT_EQ(predicted.ranks.size(), measured.ranks.size());
  for (std::size_t rank = 0; rank < measured.ranks.size(); ++rank) {
    ASSERT_EQ(predicted.ranks[rank].size(), measured.ranks[rank].size());
    for (std::size_t i = 0; i < measured.ranks[rank].size(); ++i) {
      EXPECT_EQ(predicted.ranks[rank][i].action, measured.ranks[rank][i].action);
      EXPECT_NEAR(predicted.ranks[rank][i].end_s, measured.ranks[rank][i].end_s, 1e-9);
    }
  }
}

}  // namespace
}  // namespace minipipe::core
