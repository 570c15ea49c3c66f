#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/deck/deck.hpp"
#include "core/model/batch_source.hpp"
#include "core/train/pipeline.hpp"
#include "data/sampler.hpp"
#include "data/token_file.hpp"

namespace minipipe::app {

// Batches of a token file, as the stages ask for them.
class TokenSource : public core::BatchSource {
 public:
  TokenSource(std::unique_ptr<data::TokenFile> file, data::Sampler sampler, std::size_t tokens_per_microbatch)
      : file_(std::move(file)), sampler_(sampler), tokens_per_microbatch_(tokens_per_microbatch) {}
  void batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) override;

 private:
  std::unique_ptr<data::TokenFile> file_;
  data::Sampler sampler_;
  std::size_t tokens_per_microbatch_;
  std::vector<std::int32_t> unused_;
};

// The two files of a deck. `validation` is null if the deck never evaluates.
struct TokenSources {
  std::unique_ptr<TokenSource> train;
  std::unique_ptr<TokenSource> validation;

  // Microbatches that go once through the validation file.
  std::int64_t validation_microbatches = 0;

  core::Sources sources() const { return {train.get(), validation.get()}; }
};

// Opens and checks the files; an emulated run needs none. Throws InputError naming key, file and remedy.
TokenSources open_sources(const core::Deck& deck, bool with_validation);

// An evaluation goes through the validation file once at most: lowers output.evaluation_batches to that. Returns a line of
// text if it did.
std::string fit_evaluation(core::Deck& deck, const TokenSources& sources);

}  // namespace minipipe::app
