#include "app/token_source.hpp"

#include "core/deck/rule_list.hpp"

namespace minipipe::app {

void TokenSource::batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) {
  if (tokens == nullptr || targets == nullptr) {
    unused_.resize(tokens_per_microbatch_);
    sampler_.batch(microbatch, tokens != nullptr ? tokens : unused_.data(), targets != nullptr ? targets : unused_.data());
    return;
  }
  sampler_.batch(microbatch, tokens, targets);
}

TokenSources open_sources(const core::Deck& deck, bool with_validation) {
  TokenSources result;
  if (deck.emulate.enabled) return result;
  const auto open = [&](const std::string& path, const std::string& key) {
    return std::make_unique<data::TokenFile>(data::open_token_file(path, deck.model.vocab, deck.train.sequence, key));
  };
  const std::size_t tokens =
      static_cast<std::size_t>(deck.train.microbatch_size) * static_cast<std::size_t>(deck.train.sequence);
  auto train = open(deck.data.train, "data.train");
  const data::Sampler sampler(*train, static_cast<std::uint64_t>(deck.run.seed), deck.train.microbatch_size,
                              deck.train.sequence);
  result.train = std::make_unique<TokenSource>(std::move(train), sampler, tokens);
  if (with_validation) {
    auto validation = open(deck.data.validation, "data.validation");
    const auto sequential = data::Sampler::sequential(*validation, deck.train.microbatch_size, deck.train.sequence);
    result.validation_microbatches = sequential.microbatches();
    result.validation = std::make_unique<TokenSource>(std::move(validation), sequential, tokens);
  }
  return result;
}

std::string fit_evaluation(core::Deck& deck, const TokenSources& sources) {
  const std::int64_t wanted = deck.output.evaluation_batches;
  if (!sources.validation || wanted <= sources.validation_microbatches) return "";
  deck.output.evaluation_batches = sources.validation_microbatches;
  return "output.evaluation_batches = " + std::to_string(wanted) + ": data.validation \"" + deck.data.validation + "\" holds " +
         core::plural(sources.validation_microbatches, "microbatch") + "; an evaluation goes through these once\n";
}

}  // namespace minipipe::app
