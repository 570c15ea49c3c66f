#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "schedules/error.hpp"
#include "schedules/plan/csv.hpp"

namespace minipipe::schedules {
namespace {

using testing::HasSubstr;

TEST(Action, TextOfEveryKindParsesBack) {
  for (int kind = 0; kind <= static_cast<int>(Kind::drain); ++kind) {
    const Action action{static_cast<Kind>(kind), 12, 345678901234};
    const auto parsed = parse_action(to_text(action));
    ASSERT_TRUE(parsed) << to_text(action);
    EXPECT_EQ(*parsed, action);
  }
  EXPECT_EQ(to_text({Kind::forward, 2, 0}), "2F0");
  EXPECT_EQ(to_text({Kind::send_gradient, 1, 3}), "1SEND_B3");
}

TEST(Action, RefusesWhatIsNotACell) {
  for (const char* cell : {"", "F0", "2F", "2", "2X0", "2f0", "2F0 ", " 2F0", "-1F0", "2F-1", "2F0x", "2SEND0", "2F1.5",
                           "99999999999F0", "0F99999999999999999999"}) {
    EXPECT_FALSE(parse_action(cell)) << "'" << cell << "'";
  }
}

TEST(Csv, ReadsRowsCellsAndBlanks) {
  std::istringstream text("0F0, 0SEND_F0 ,,0B0,0U0\r\n\n,1F0,1I0,1W0,\n,\n2D4");
  const Plan plan = read_csv(text, "plan.csv");
  ASSERT_EQ(plan.ranks.size(), 4u);
  EXPECT_EQ(plan.ranks[0],
            (ActionList{{Kind::forward, 0, 0}, {Kind::send_activation, 0, 0}, {Kind::backward, 0, 0}, {Kind::update, 0, 0}}));
  EXPECT_EQ(plan.ranks[1], (ActionList{{Kind::forward, 1, 0}, {Kind::backward_input, 1, 0}, {Kind::backward_weight, 1, 0}}));
  EXPECT_TRUE(plan.ranks[2].empty());
  EXPECT_EQ(plan.ranks[3], (ActionList{{Kind::drain, 2, 4}}));
}

TEST(Csv, RoundTrip) {
  Plan plan;
  plan.ranks.resize(3);  // the middle and the last rank have no actions
  for (int kind = 0; kind <= static_cast<int>(Kind::drain); ++kind)
    plan.ranks[0].push_back({static_cast<Kind>(kind), 0, kind * 7});
  std::stringstream text;
  write_csv(text, plan);
  EXPECT_EQ(read_csv(text, "memory").ranks, plan.ranks);
}

TEST(Csv, ErrorNamesFileRowAndCell) {
  std::istringstream text("0F0,0B0\n1F0,1Q0\n");
  try {
    read_csv(text, "broken.csv");
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("broken.csv"));
    EXPECT_THAT(error.what(), HasSubstr("row 2, rank 1, cell 2: "));
    EXPECT_THAT(error.what(), HasSubstr("'1Q0'"));
  }
  std::istringstream empty("\n \n");
  EXPECT_THROW(read_csv(empty, "empty.csv"), InputError);
}

TEST(Log, PlanDropsTimes) {
  Log log;
  log.ranks = {{{{Kind::forward, 0, 0}, 1, 2, 0}, {{Kind::update, 0, 0}, 2, 3, 0}}};
  EXPECT_EQ(log.plan().ranks, (std::vector<ActionList>{{{Kind::forward, 0, 0}, {Kind::update, 0, 0}}}));
}

}  // namespace
}  // namespace minipipe::schedules
