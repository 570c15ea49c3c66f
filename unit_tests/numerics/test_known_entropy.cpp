// A model that learns cannot do better than the entropy of its data, and one that has learned a first-order language does
// better than the entropy of single tokens. Whole pipelines in one process, under a flush and an asynchronous schedule.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/train/options.hpp"
#include "core/train/pipeline.hpp"
#include "data/synthetic.hpp"
#include "schedules/policy/rank_list.hpp"
#include "unit_tests/core/train/decks.hpp"

namespace minipipe::core {
namespace {

// Consecutive windows of a generated text.
class SyntheticSource : public BatchSource {
 public:
  SyntheticSource(const data::SyntheticLanguage& language, std::int64_t stream, const TrainShape& shape)
      : text_(language.generate(1 << 16, stream)), shape_(shape) {}

  void batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) override {
    const std::int64_t rows = shape_.rows();
    const std::int64_t first = microbatch * rows % (static_cast<std::int64_t>(text_.size()) - rows - 1);
    for (std::int64_t i = 0; i < rows; ++i) {
      if (tokens != nullptr) tokens[i] = static_cast<std::int32_t>(text_[first + i]);
      if (targets != nullptr) targets[i] = static_cast<std::int32_t>(text_[first + i + 1]);
    }
  }

 private:
  decltype(std::declval<data::SyntheticLanguage>().generate(1, 0)) text_;
  TrainShape shape_;
};

class KnownEntropy : public ::testing::TestWithParam<const char*> {};

TEST_P(KnownEntropy, BoundsTheLossFromBelowAndIsApproached) {
  const Deck deck =
      tests::small_deck({std::string("schedule.name=") + GetParam(), "schedule.order=fixed", "model.layers=2", "model.width=32",
                         "model.vocab=16", "run.steps=150", "train.learning_rate=1e-2", "train.microbatches=2",
                         "train.microbatch_size=8", "train.sequence=16", "train.weight_decay=0.0"});
  const data::SyntheticLanguage language(deck.model.vocab, 7);
  SyntheticSource train(language, 0, train_shape(deck));
  SyntheticSource validation(language, 1, train_shape(deck));
  const Place place{.rank = 0, .ranks = 1, .placement = schedules::one_stage_per_rank(2)};
  Pipeline pipeline(deck, place, MPI_COMM_SELF, {&train, &validation}, [] { return MPI_Wtime(); });
  std::map<int, std::unique_ptr<schedules::Policy>> policies;
  for (int rank = 0; rank < 2; ++rank) {
    policies.merge(schedules::make_rank_policies(schedule_options(deck, 2), place.placement, rank));
  }
  const auto poll = [](bool) -> std::optional<std::int64_t> { return std::nullopt; };
  pipeline.run_segment(std::move(policies), deck.run.steps * deck.train.microbatches, poll);
  double loss = 0;
  const auto losses = pipeline.evaluate(validation, 32, poll);
  ASSERT_EQ(losses.size(), 32U);
  for (const MicrobatchLoss& value : losses) loss += value.loss / 32;
  // 4096 tokens: the mean of their information lies within some hundredths of the entropy.
  EXPECT_GT(loss, language.entropy() - 0.05);
  EXPECT_LT(loss, 0.5 * (language.entropy() + language.unigram_entropy()));
}

INSTANTIATE_TEST_SUITE_P(Schedules, KnownEntropy, ::testing::Values("1f1b", "paci"));

}  // namespace
}  // namespace minipipe::core
