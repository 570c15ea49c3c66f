#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/model/kokkos_stage.hpp"
#include "schedules/error.hpp"

namespace minipipe::core::test {

// What validate() says; empty: nothing.
inline std::string complaint(const ModelConfig& model) {
  try {
    validate(model, {2, 16}, 1);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// Tokens that follow from a hash of (seed, microbatch, position).
class HashedTokens : public BatchSource {
 public:
  HashedTokens(const TrainShape& shape, int vocab, std::uint64_t seed = 7) : shape_(shape), vocab_(vocab), seed_(seed) {}

  void batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) override {
    for (int b = 0; b < shape_.microbatch_size; ++b) {
      for (int t = 0; t < shape_.sequence; ++t) {
        const int row = b * shape_.sequence + t;
        if (tokens != nullptr) tokens[row] = token(microbatch, b, t);
        if (targets != nullptr) targets[row] = token(microbatch, b, t + 1);
      }
    }
  }

 private:
  std::int32_t token(std::int64_t microbatch, int b, int t) const {
    std::uint64_t x = seed_ + 1000003ULL * static_cast<std::uint64_t>(microbatch) + 10007ULL * b + t;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return static_cast<std::int32_t>((x ^ (x >> 31)) % static_cast<std::uint64_t>(vocab_));
  }

  TrainShape shape_;
  int vocab_;
  std::uint64_t seed_;
};

// A small model that exercises everything.
inline KokkosStageOptions small_options() {
  KokkosStageOptions options;
  options.model = {"gpt2", 4, 32, 4, 29, 24, false, 0.1};
  options.shape = {2, 16};
  options.seed = 5;
  options.window = 3;
  options.activation_slots = 3;
  options.learning_rate = {1e-2, 1e-3, 2, 10};
  return options;
}

// The same as a LLaMA: two query heads share a key.
inline KokkosStageOptions small_llama() {
  KokkosStageOptions options = small_options();
  options.model.family = "llama";
  options.model.kv_heads = 2;
  options.model.hidden = 40;
  return options;
}

// A layer for each letter of the pattern.
inline KokkosStageOptions small_hybrid(const std::string& pattern = "M*#-M") {
  KokkosStageOptions options = small_llama();
  ModelConfig& model = options.model;
  model.family = "hybrid";
  model.pattern = pattern;
  model.layers = static_cast<int>(pattern.size());
  model.experts = 4;
  model.expert_hidden = 24;
  model.state_size = 8;
  model.state_head_size = 16;
  model.state_groups = 2;
  return options;
}

// All stages of a model in this process, one after another on the same thread.
class Pipeline {
 public:
  // `adjust` may change the options of each stage.
  Pipeline(KokkosStageOptions options, int count, const std::vector<int>& partition = {},
           const std::function<void(KokkosStageOptions&)>& adjust = {})
      : source(options.shape, options.model.vocab), window_(options.window), slots_(options.activation_slots) {
    const auto layers = partition_model(options.model, options.shape.sequence, count, partition);
    const std::size_t floats = static_cast<std::size_t>(options.shape.rows()) * options.model.width;
    for (int s = 0; s + 1 < count; ++s) {
      activations_.emplace_back("activations", slots_, floats);
      gradients_.emplace_back("gradients", slots_, floats);
    }
    options.stages = count;
    for (int s = 0; s < count; ++s) {
      options.stage = s;
      options.layers = layers[s];
      options.messages = {};
      if (s > 0) options.messages.activation_in = activations_[s - 1];
      if (s > 0) options.messages.gradient_out = gradients_[s - 1];
      if (s + 1 < count) options.messages.activation_out = activations_[s];
      if (s + 1 < count) options.messages.gradient_in = gradients_[s];
      KokkosStageOptions own = options;
      if (adjust) adjust(own);
      stages.push_back(std::make_unique<KokkosStage>(own, source));
    }
  }

  void forward(std::int64_t microbatch) {
    const int slot = static_cast<int>(microbatch % slots_);
    for (std::size_t s = 0; s < stages.size(); ++s) {
      stages[s]->forward(microbatch, slot, s > 0 ? slot : -1, s + 1 < stages.size() ? slot : -1);
      stages[s]->complete_output();
    }
  }

  void backward(std::int64_t microbatch) {
    const int slot = static_cast<int>(microbatch % slots_);
    for (std::size_t s = stages.size(); s-- > 0;) {
      stages[s]->backward(microbatch, slot, s + 1 < stages.size() ? slot : -1, s > 0 ? slot : -1);
      stages[s]->complete_output();
    }
  }

  // One update: forwards of the window, then its backwards.
  void step(std::int64_t update) {
    for (std::int64_t k = 0; k < window_; ++k) forward(update * window_ + k);
    for (std::int64_t k = 0; k < window_; ++k) backward(update * window_ + k);
    for (const auto& stage : stages) stage->update(update);
  }

  // Mean losses of the last stage since the last call.
  std::vector<double> take_losses() {
    std::vector<double> losses;
    for (const auto& [microbatch, loss, tokens] : stages.back()->take_losses()) losses.push_back(loss);
    return losses;
  }

  // All values of a kind, by name.
  std::map<std::string, std::vector<float>> read(std::vector<float> (ParameterStore::*getter)(std::size_t) const) const {
    std::map<std::string, std::vector<float>> all;
    for (const auto& stage : stages) {
      const ParameterStore& store = stage->parameters();
      for (std::size_t e = 0; e < store.entries().size(); ++e) all[store.entries()[e].name] = (store.*getter)(e);
    }
    return all;
  }

  HashedTokens source;
  std::vector<std::unique_ptr<KokkosStage>> stages;

 private:
  std::int64_t window_, slots_;
  std::vector<OwnedMatrix<float>> activations_, gradients_;
};

}  // namespace minipipe::core::test
