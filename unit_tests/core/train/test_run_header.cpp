#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/train/options.hpp"
#include "core/train/run_header.hpp"

namespace minipipe::core {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Deck small_deck() {
  Deck deck;
  deck.model = {.family = "gpt2", .layers = 5, .width = 16, .heads = 2, .vocab = 10, .context = 8, .tied = true};
  deck.train.sequence = 8;
  deck.train.microbatch_size = 2;
  deck.train.microbatches = 3;
  deck.schedule.name = "1f1b";
  deck.output.directory = "runs/mine";
  return deck;
}

TEST(RunHeader, SaysWhatIsTrainedWhereAndOfWhatSize) {
  Deck deck = small_deck();
  deck.parallel.data = 2;
  deck.parallel.stages = 2;
  // A block: two norms (4 C), 12 C^2 of matrices, 13 C - 4 C of biases; embeddings (V + T) C; the last norm 2 C.
  const int c = 16, parameters = 5 * (12 * c * c + 13 * c) + (10 + 8) * c + 2 * c;
  const std::string text = run_header(deck, place_of_run(deck, 0, 4), 3 << 20);
  EXPECT_EQ(parameters, 16720);
  EXPECT_THAT(text,
              HasSubstr("1f1b: gpt2, 0.01672 million parameters; 4 ranks = 2 replicas x 2 ranks with 2 stages, layers ["));
  EXPECT_THAT(text, HasSubstr("; 96 tokens an update; 3.00 MiB on the fullest rank; results in runs/mine\n"));
  EXPECT_THAT(text, Not(HasSubstr("note")));
  EXPECT_THAT(run_header(deck, place_of_run(deck, 0, 4), std::int64_t{3} << 29), HasSubstr("; 1.50 GiB on the fullest rank"));
}

TEST(RunHeader, NotesASchedulesNameThatTheGridMakesVoid) {
  Deck deck = small_deck();
  EXPECT_THAT(run_header(deck, place_of_run(deck, 0, 1), 0), Not(HasSubstr("note")));
  deck.schedule.name = "paci";
  EXPECT_THAT(run_header(deck, place_of_run(deck, 0, 1), 0), HasSubstr("note: one stage, so paci has nothing to overlap"));
  EXPECT_THAT(run_header(deck, place_of_run(deck, 0, 2), 0), Not(HasSubstr("note")));
  deck.schedule.name = "interleaved";
  deck.schedule.chunks = 1;
  EXPECT_THAT(run_header(deck, place_of_run(deck, 0, 2), 0), HasSubstr("note: schedule.chunks = 1, so interleaved is 1f1b"));
}

TEST(RunHeader, AnEmulatedRunHasNoModel) {
  Deck deck = small_deck();
  deck.emulate.enabled = true;
  EXPECT_THAT(run_header(deck, place_of_run(deck, 0, 2), 0), Not(HasSubstr("parameters")));
}

}  // namespace
}  // namespace minipipe::core
