#include "unit_tests/core/deck/support.hpp"

namespace minipipe::core {
namespace {

using ::testing::HasSubstr;

// What the rules say about a hybrid of five layers.
std::string hybrid_error(const std::vector<std::string>& more, int ranks = 1, const std::string& pattern = "M-*#M",
                         int layers = 5) {
  std::vector<std::string> overrides = {"model.family=hybrid", "model.layers=" + std::to_string(layers),
                                        "model.pattern=\"" + pattern + "\""};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return rules_error(overrides, ranks);
}

TEST(HybridRules, APatternAndItsFamilyGoTogether) {
  EXPECT_EQ(hybrid_error({}), "");
  for (const int ranks : {2, 4, 5}) EXPECT_EQ(hybrid_error({}, ranks), "") << ranks;
  EXPECT_THAT(rules_error({"model.family=hybrid"}),
              HasSubstr("model.pattern = \"\": model.family = \"hybrid\" needs a letter for each layer"));
  EXPECT_THAT(rules_error({"model.pattern=\"--------\""}),
              HasSubstr("model.pattern = \"--------\": model.family = \"gpt2\" has transformer blocks only"));
}

TEST(HybridRules, EveryLayerHasALetter) {
  const std::string error = hybrid_error({}, 1, "M-*#M", 6);
  EXPECT_THAT(error, HasSubstr("model.layers = 6: model.pattern = \"M-*#M\" has 5 letters, one for each layer; set "
                               "model.layers = 5"));
}

TEST(HybridRules, UnknownLettersAreNamedWithTheirPosition) {
  EXPECT_THAT(hybrid_error({}, 1, "M-x#M"),
              HasSubstr("model.pattern = \"M-x#M\": has 'x' at position 3; use * (attention), - (MLP), # (mixture of experts) "
                        "and M (state space)"));
  EXPECT_THAT(hybrid_error({}, 1, "M-\u00e4#M"), HasSubstr("has '\u00e4' at position 3; "));
}

TEST(HybridRules, SizesFitEachOther) {
  EXPECT_THAT(hybrid_error({"model.expert_choices=9"}), HasSubstr("model.expert_choices = 9: is more than model.experts = 8"));
  EXPECT_THAT(hybrid_error({"model.state_head_size=24"}),
              HasSubstr("model.state_head_size = 24: does not divide model.width * model.state_expand = 256"));
  EXPECT_THAT(hybrid_error({"model.state_groups=3"}), HasSubstr("model.state_groups = 3: does not divide the 8 heads"));
  EXPECT_THAT(hybrid_error({"model.width=60", "model.state_head_size=30"}), HasSubstr("model.heads = 4: rotary positions"));
  EXPECT_THAT(read_error("", {"model.conv_width=9"}), HasSubstr("model.conv_width"));
}

TEST(HybridRules, KeysOfLayersThatAreNotThereDoNothing) {
  EXPECT_EQ(hybrid_error({"model.expert_choices=9", "model.state_head_size=24"}, 1, "--*-*"), "");
  EXPECT_EQ(rules_error({"model.expert_choices=9", "model.state_groups=3"}), "");
}

TEST(HybridRules, RefuseSubnetworks) {
  EXPECT_THAT(hybrid_error({"parallel.mode=sdp"}),
              HasSubstr("parallel.mode = \"sdp\": subnetworks are made of transformer blocks"));
  EXPECT_EQ(hybrid_error({"parallel.mode=fsdp", "precision.compute=bf16"}), "");
}

}  // namespace
}  // namespace minipipe::core
