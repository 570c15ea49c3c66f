#include "core/deck/hybrid_rules.hpp"

#include <limits>
#include <string>

#include "core/deck/schema.hpp"
#include "core/deck/text.hpp"

namespace minipipe::core {
namespace {

constexpr char experts = '#', state_space = 'M';
constexpr const char* letters = "*-#M";

bool has(const Deck& deck, char letter) { return deck.model.pattern.find(letter) != std::string::npos; }

void check_pattern(Rules& rules, const Deck& deck) {
  const Deck::Model& model = deck.model;
  const auto length = static_cast<std::int64_t>(model.pattern.size());
  const std::size_t bad = model.pattern.find_first_not_of(letters);
  if (bad != std::string::npos) {
    rules.require(false, "model", "pattern",
                  "has '" + letter_at(model.pattern, bad) + "' at position " + str(static_cast<std::int64_t>(bad) + 1) +
                      "; use * (attention), - (MLP), # (mixture of experts) and M (state space)");
  }
  rules.require(length == model.layers, "model", "layers",
                "model.pattern = " + shortened(to_toml(Value(model.pattern))) + " has " + plural(length, "letter") +
                    ", one for each layer; set model.layers = " + str(length) + ", or change the pattern");
}

void check_experts(Rules& rules, const Deck& deck) {
  rules.require(deck.model.expert_choices <= deck.model.experts, "model", "expert_choices",
                "is more than model.experts = " + str(deck.model.experts) + "; change one of them");
}

void check_state_space(Rules& rules, const Deck& deck) {
  const Deck::Model& model = deck.model;
  const std::int64_t inside = std::int64_t{model.width} * model.state_expand, heads = inside / model.state_head_size;
  // The rows of the first matrix, 2 inside + 2 groups * state + heads, are an int.
  constexpr std::int64_t most = std::numeric_limits<int>::max() / 8;
  const std::int64_t shared = std::int64_t{model.state_groups} * model.state_size;
  if (inside > most || shared > most) {
    rules.require(false, "model", inside > most ? "state_expand" : "state_size",
                  "makes a state space of more than " + str(most) + " features; lower it");
    return;
  }
  if (inside % model.state_head_size != 0) {
    rules.require(false, "model", "state_head_size",
                  "does not divide model.width * model.state_expand = " + str(inside) + "; change one of them");
    return;
  }
  rules.require(heads % model.state_groups == 0, "model", "state_groups",
                "does not divide the " + plural(heads, "head") +
                    " = model.width * model.state_expand / model.state_head_size of a state space; change one of them");
}

}  // namespace

void check_hybrid(Rules& rules, const Deck& deck) {
  const Deck::Model& model = deck.model;
  const bool hybrid = model.family == "hybrid";
  if (!hybrid) {
    rules.require(model.pattern.empty(), "model", "pattern",
                  "model.family = " + to_toml(Value(model.family)) +
                      " has transformer blocks only; leave it out, or use model.family = \"hybrid\"");
    return;
  }
  if (model.pattern.empty()) {
    rules.require(
        false, "model", "pattern",
        "model.family = \"hybrid\" needs a letter for each layer, such as \"M-M*M#M-\"; give one, or use model.family "
        "= \"llama\"");
    return;
  }
  check_pattern(rules, deck);
  if (has(deck, experts)) check_experts(rules, deck);
  if (has(deck, state_space)) check_state_space(rules, deck);
  rules.require(
      deck.parallel.mode != "sdp", "parallel", "mode",
      "subnetworks are made of transformer blocks, but model.family = \"hybrid\"; use \"ddp\", \"zero1\" or \"fsdp\", or "
      "another family");
}

}  // namespace minipipe::core
