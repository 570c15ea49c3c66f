#include "core/model/model_config.hpp"

#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

void require(bool good, const std::string& key, const std::string& value, const std::string& remedy) {
  if (!good) throw InputError(key + " = " + value + ": " + remedy);
}

void require_positive(const char* key, int value) { require(value > 0, key, std::to_string(value), "must be at least 1"); }

}  // namespace

void validate(const ModelConfig& model, const TrainShape& shape, int stages) {
  require(model.family == "gpt2", "model.family", "\"" + model.family + "\"", "unknown family; use \"gpt2\"");
  require_positive("model.layers", model.layers);
  require_positive("model.width", model.width);
  require_positive("model.heads", model.heads);
  require_positive("model.vocab", model.vocab);
  require_positive("model.context", model.context);
  require_positive("train.microbatch_size", shape.microbatch_size);
  require_positive("train.sequence", shape.sequence);
  require(model.width % model.heads == 0, "model.width", std::to_string(model.width),
          "must be a multiple of model.heads = " + std::to_string(model.heads));
  require(shape.sequence <= model.context, "train.sequence", std::to_string(shape.sequence),
          "must not be larger than model.context = " + std::to_string(model.context));
  require(model.dropout >= 0.0 && model.dropout < 1.0, "model.dropout", std::to_string(model.dropout), "must be in [0, 1)");
  require(!model.tied || stages == 1, "model.tied", "true",
          "embedding and head sit on different stages when there are " + std::to_string(stages) +
              " stages; set model.tied = false or use one stage");
}

}  // namespace minipipe::core
