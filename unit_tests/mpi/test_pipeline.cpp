#include <gtest/gtest.h>
#include <mpi.h>

#include <string>
#include <vector>

#include "core/comm/mpi_error.hpp"
#include "unit_tests/mpi/toy_pipeline.hpp"

namespace minipipe::core {
namespace {

using schedules::ScheduleOptions;

class Pipeline : public ::testing::Test {
 protected:
  Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);

  ScheduleOptions options(const std::string& name, std::int64_t window, schedules::Order order) const {
    ScheduleOptions result;
    result.name = name;
    result.stages = comm.size();
    result.window = window;
    result.order = order;
    return result;
  }

  void expect_same(const ToyOverMpi& run, const ToyInProcess& reference) const {
    ASSERT_TRUE(run.finished) << run.description;
    const auto& expected = *reference.stages[static_cast<std::size_t>(comm.rank())];
    EXPECT_EQ(run.stage->toy.weight(), expected.weight());
    EXPECT_EQ(run.stage->toy.losses(), expected.losses());
    EXPECT_EQ(run.stage->toy.forward_versions(), expected.forward_versions());
    EXPECT_EQ(run.stage->toy.backward_versions(), expected.backward_versions());
  }

  // The actions of all ranks.
  std::vector<schedules::ActionList> gather(const schedules::ActionList& mine) const {
    std::vector<schedules::ActionList> all(static_cast<std::size_t>(comm.size()));
    for (int r = 0; r < comm.size(); ++r) {
      auto count = static_cast<std::int64_t>(mine.size());
      MPI_Bcast(&count, 1, MPI_INT64_T, r, comm.get());
      for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t cell[2] = {0, 0};
        if (r == comm.rank()) {
          const auto& action = mine[static_cast<std::size_t>(i)];
          cell[0] = static_cast<std::int64_t>(action.kind);
          cell[1] = action.microbatch;
        }
        MPI_Bcast(cell, 2, MPI_INT64_T, r, comm.get());
        all[static_cast<std::size_t>(r)].push_back({static_cast<schedules::Kind>(cell[0]), r, cell[1]});
      }
    }
    return all;
  }
};

TEST_F(Pipeline, fixed_orders_give_the_same_bits_over_ranks_and_in_one_process) {
  for (const char* name : {"gpipe", "1f1b", "paci"}) {
    for (const double latency_s : {0.0, 2e-4}) {
      SCOPED_TRACE(std::string(name) + ", latency " + std::to_string(latency_s));
      const ScheduleOptions chosen = options(name, 3, schedules::Order::fixed);
      const auto make = [&](int stage) { return schedules::make_policy(chosen, stage); };
      const std::vector<std::int64_t> ends{12, 30};
      const ToyOverMpi run(comm.get(), chosen, make, ends, latency_s);
      expect_same(run, ToyInProcess(chosen, make, ends));
      if (comm.rank() + 1 == comm.size()) {
        EXPECT_EQ(run.stage->toy.losses().size(), 30u);
      }
    }
  }
}

TEST_F(Pipeline, a_recorded_dynamic_run_replays_to_the_same_bits) {
  const ScheduleOptions chosen = options("paci", 2, schedules::Order::dynamic);
  const std::vector<std::int64_t> ends{40};
  const auto live = [&](int stage) { return schedules::make_policy(chosen, stage); };
  const ToyOverMpi run(comm.get(), chosen, live, ends, 1e-4);
  const auto lists = gather(run.actions);
  EXPECT_EQ(run.actions.size(), 40u * 2 + 20u);
  const auto replay = [&](int stage) { return schedules::make_list_policy(lists[static_cast<std::size_t>(stage)]); };
  expect_same(run, ToyInProcess(chosen, replay, ends));
  // Bounded weight versions: at most ceil((N - i) / a) updates between a forward and its backward.
  const auto& toy = run.stage->toy;
  for (std::size_t k = 0; k < toy.forward_versions().size(); ++k) {
    EXPECT_LE(toy.backward_versions()[k] - toy.forward_versions()[k], schedules::version_gap_bound(chosen, comm.rank()));
  }
}

}  // namespace
}  // namespace minipipe::core
