#include "core/model/model_config.hpp"

#include "core/model/mlp_rule.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

void require(bool good, const std::string& key, const std::string& value, const std::string& remedy) {
  if (!good) throw InputError(key + " = " + value + ": " + remedy);
}

bool is_hybrid(const ModelConfig& model) { return model.family == "hybrid"; }
bool has_llama_parts(const ModelConfig& model) { return model.family == "llama" || is_hybrid(model); }

void require_positive(const char* key, int value) { require(value > 0, key, std::to_string(value), "must be at least 1"); }

// What only some kinds of layers ask for.
void validate_layer(const ModelConfig& model, LayerKind kind) {
  if (kind == LayerKind::experts) {
    require_positive("model.experts", model.experts);
    require_positive("model.expert_choices", model.expert_choices);
    require(model.expert_choices <= model.experts, "model.expert_choices", std::to_string(model.expert_choices),
            "must not be more than model.experts = " + std::to_string(model.experts));
  }
  if (kind == LayerKind::state_space) {
    require_positive("model.state_size", model.state_size);
    require_positive("model.state_head_size", model.state_head_size);
    require_positive("model.state_groups", model.state_groups);
    require_positive("model.state_expand", model.state_expand);
    require_positive("model.conv_width", model.conv_width);
    require(state_width(model) % model.state_head_size == 0, "model.state_head_size", std::to_string(model.state_head_size),
            "must divide model.width * model.state_expand = " + std::to_string(state_width(model)));
    require(state_heads(model) % model.state_groups == 0, "model.state_groups", std::to_string(model.state_groups),
            "must divide the " + std::to_string(state_heads(model)) + " heads of a state space");
  }
}

}  // namespace

Architecture architecture(const ModelConfig& model) {
  if (!has_llama_parts(model)) return {};
  return {.rms_norm = true, .rotary = true, .biases = false, .gated_mlp = true, .fused_qkv = false};
}

int kv_heads(const ModelConfig& model) { return model.kv_heads > 0 ? model.kv_heads : model.heads; }

int hidden_width(const ModelConfig& model) { return mlp_width(model.family, model.width, model.hidden); }

int expert_width(const ModelConfig& model) {
  constexpr int whole = 16;
  if (model.expert_hidden > 0) return model.expert_hidden;
  return (hidden_width(model) / model.expert_choices + whole - 1) / whole * whole;
}

LayerKind layer_kind(const ModelConfig& model, int block) {
  if (model.pattern.empty()) return LayerKind::transformer;
  switch (model.pattern.at(static_cast<std::size_t>(block))) {
    case '*':
      return LayerKind::attention;
    case '-':
      return LayerKind::mlp;
    case '#':
      return LayerKind::experts;
    case 'M':
      return LayerKind::state_space;
    default:
      throw InputError("model.pattern = \"" + model.pattern + "\": unknown letter at position " + std::to_string(block + 1));
  }
}

const char* name_of(LayerKind kind) {
  constexpr const char* names[layer_kinds] = {"transformer", "attention", "mlp", "experts", "state_space"};
  return names[static_cast<int>(kind)];
}

void validate(const ModelConfig& model, const TrainShape& shape, int stages) {
  require(model.family == "gpt2" || has_llama_parts(model), "model.family", "\"" + model.family + "\"",
          "unknown family; use \"gpt2\", \"llama\" or \"hybrid\"");
  require_positive("model.layers", model.layers);
  if (is_hybrid(model)) {
    require(static_cast<int>(model.pattern.size()) == model.layers, "model.pattern", "\"" + model.pattern + "\"",
            "needs one letter for each of the " + std::to_string(model.layers) + " layers of model.layers");
    for (int b = 0; b < model.layers; ++b) validate_layer(model, layer_kind(model, b));
  } else {
    require(model.pattern.empty(), "model.pattern", "\"" + model.pattern + "\"",
            "only model.family = \"hybrid\" has a pattern");
  }
  require_positive("model.width", model.width);
  require_positive("model.heads", model.heads);
  require_positive("model.vocab", model.vocab);
  require_positive("model.context", model.context);
  require_positive("train.microbatch_size", shape.microbatch_size);
  require_positive("train.sequence", shape.sequence);
  require(model.width % model.heads == 0, "model.width", std::to_string(model.width),
          "must be a multiple of model.heads = " + std::to_string(model.heads));
  require(model.kv_heads >= 0 && model.heads % kv_heads(model) == 0, "model.kv_heads", std::to_string(model.kv_heads),
          "must divide model.heads = " + std::to_string(model.heads) + "; 0 means as many");
  require(has_llama_parts(model) || kv_heads(model) == model.heads, "model.kv_heads", std::to_string(model.kv_heads),
          "gpt2 has one fused projection with as many key-value heads as heads; use 0, or model.family = \"llama\"");
  require(model.hidden >= 0, "model.hidden", std::to_string(model.hidden), "must not be negative; 0 means the family's rule");
  require(!has_llama_parts(model) || head_size(model) % 2 == 0, "model.heads", std::to_string(model.heads),
          "rotary positions need an even head size, not model.width / model.heads = " + std::to_string(head_size(model)));
  require(shape.sequence <= model.context, "train.sequence", std::to_string(shape.sequence),
          "must not be larger than model.context = " + std::to_string(model.context));
  require(model.dropout >= 0.0 && model.dropout < 1.0, "model.dropout", std::to_string(model.dropout), "must be in [0, 1)");
  require(!model.tied || stages == 1, "model.tied", "true",
          "embedding and head sit on different stages when there are " + std::to_string(stages) +
              " stages; set model.tied = false or use one stage");
}

}  // namespace minipipe::core
