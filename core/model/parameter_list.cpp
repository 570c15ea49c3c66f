#include "core/model/parameter_list.hpp"

#include <array>

#include "core/model/padding.hpp"

namespace minipipe::core {

namespace {

class ListBuilder {
 public:
  explicit ListBuilder(const ModelConfig& model) : model_(model), kind_(architecture(model)) {}

  // The number of the next tensor in the unsplit model.
  void at(int global_index) { index_ = global_index; }
  // Of the tensors from here on.
  void layer(int number, bool mlp = false) {
    layer_ = number;
    mlp_ = mlp;
  }

  void matrix(const std::string& name, int rows, int columns, Start start, int hidden_maps = 0,
              NeuronAxis neurons = NeuronAxis::none) {
    add(name + ".weight", {rows, columns}, start, hidden_maps, neurons);
  }
  void vector(const std::string& name, int size, Start start) { add(name, {size}, start, 0, NeuronAxis::none); }
  void norm(const std::string& name) {
    vector(name + ".weight", model_.width, Start::ones);
    if (!kind_.rms_norm) vector(name + ".bias", model_.width, Start::zeros);
  }
  void linear(const std::string& name, int rows, int columns, Start start, int hidden_maps = 1,
              NeuronAxis neurons = NeuronAxis::none) {
    matrix(name, rows, columns, start, hidden_maps, neurons);
    const NeuronAxis of_bias = neurons == NeuronAxis::rows ? NeuronAxis::columns : NeuronAxis::none;
    if (kind_.biases) add(name + ".bias", {rows}, Start::zeros, 0, of_bias);
  }

  std::vector<ParameterEntry> entries;

 private:
  void add(std::string name, std::vector<int> shape, Start start, int hidden_maps, NeuronAxis neurons) {
    const MatrixShape extents = matrix_shape(shape);
    ParameterEntry entry;
    entry.slabs = {{.rows = extents.rows, .columns = extents.columns}};
    entry.full_shape = shape;
    entry.layer = layer_;
    entry.mlp = mlp_;
    entry.neurons = neurons;
    entry.name = std::move(name);
    entry.size = 1;
    for (const int extent : shape) entry.size *= static_cast<std::size_t>(extent);
    entry.offset = end_;
    entry.decay = shape.size() > 1;
    entry.shape = std::move(shape);
    entry.global_index = index_++;
    entry.start = start;
    entry.hidden_maps = hidden_maps;
    end_ += padded(entry.size);
    entries.push_back(std::move(entry));
  }

  const ModelConfig& model_;
  Architecture kind_;
  int index_ = 0, layer_ = 0;
  bool mlp_ = false;
  std::size_t end_ = 0;
};

// Names in Hugging Face's checkpoints of a family.
struct Names {
  std::string tokens, blocks, norm_1, norm_2, attention, mlp, norm;
};

Names names(const ModelConfig& model) {
  if (!model.pattern.empty()) {
    return {"backbone.embeddings", "backbone.layers.", "norm", "norm", "mixer.", "mixer.", "backbone.norm_f"};
  }
  if (architecture(model).fused_qkv)
    return {"transformer.wte", "transformer.h.", "ln_1", "ln_2", "attn.", "mlp.", "transformer.ln_f"};
  return {"model.embed_tokens", "model.layers.", "input_layernorm", "post_attention_layernorm",
          "self_attn.",         "mlp.",          "model.norm"};
}

// Each branch with the norm before it, whose name is given without the ending; `prefix`: of the others.

void add_attention(ListBuilder& list, const ModelConfig& model, const std::string& norm, const std::string& prefix) {
  const int width = model.width;
  list.norm(norm);
  if (architecture(model).fused_qkv) {
    list.linear(prefix + "c_attn", 3 * width, width, Start::normal, 3);
    list.linear(prefix + "c_proj", width, width, Start::normal_residual);
    return;
  }
  list.linear(prefix + "q_proj", width, width, Start::normal);
  list.linear(prefix + "k_proj", kv_width(model), width, Start::normal);
  list.linear(prefix + "v_proj", kv_width(model), width, Start::normal);
  list.linear(prefix + "o_proj", width, width, Start::normal_residual);
}

void add_mlp(ListBuilder& list, const ModelConfig& model, const std::string& norm, const std::string& prefix) {
  const int width = model.width, hidden = hidden_width(model);
  const bool gated = architecture(model).gated_mlp;
  list.norm(norm);
  if (gated) {
    list.linear(prefix + "gate_proj", hidden, width, Start::normal, 1, NeuronAxis::rows);
    list.linear(prefix + "up_proj", hidden, width, Start::normal, 1, NeuronAxis::rows);
  } else {
    list.linear(prefix + "c_fc", hidden, width, Start::normal, 1, NeuronAxis::rows);
  }
  list.linear(prefix + (gated ? "down_proj" : "c_proj"), width, hidden, Start::normal_residual, 1, NeuronAxis::columns);
}

void add_experts(ListBuilder& list, const ModelConfig& model, const std::string& norm, const std::string& prefix) {
  const int width = model.width, hidden = expert_width(model);
  list.norm(norm);
  list.matrix(prefix + "gate", model.experts, width, Start::normal);
  for (int e = 0; e < model.experts; ++e) {
    const std::string expert = prefix + "experts." + std::to_string(e) + ".";
    list.linear(expert + "gate_proj", hidden, width, Start::normal);
    list.linear(expert + "up_proj", hidden, width, Start::normal);
    list.linear(expert + "down_proj", width, hidden, Start::normal_residual);
  }
}

void add_state_space(ListBuilder& list, const ModelConfig& model, const std::string& norm, const std::string& prefix) {
  const int inside = state_width(model), convolved = conv_features(model), heads = state_heads(model);
  list.norm(norm);
  list.linear(prefix + "in_proj", inside + convolved + heads, model.width, Start::normal);
  list.matrix(prefix + "conv1d", convolved, model.conv_width, Start::convolution);
  list.vector(prefix + "conv1d.bias", convolved, Start::convolution);
  list.vector(prefix + "dt_bias", heads, Start::time_step);
  list.vector(prefix + "A_log", heads, Start::decay_rate);
  list.vector(prefix + "D", heads, Start::ones);
  list.vector(prefix + "norm.weight", inside, Start::ones);
  list.linear(prefix + "out_proj", model.width, inside, Start::normal_residual);
}

void add_block(ListBuilder& list, const ModelConfig& model, int block, int layer) {
  const Names name = names(model);
  const std::string prefix = name.blocks + std::to_string(block) + ".";
  const LayerKind kind = layer_kind(model, block);
  list.layer(layer);
  if (kind == LayerKind::transformer || kind == LayerKind::attention) {
    add_attention(list, model, prefix + name.norm_1, prefix + name.attention);
  }
  if (kind == LayerKind::experts) add_experts(list, model, prefix + name.norm_1, prefix + name.mlp);
  if (kind == LayerKind::state_space) add_state_space(list, model, prefix + name.norm_1, prefix + name.mlp);
  if (kind == LayerKind::transformer || kind == LayerKind::mlp) {
    list.layer(layer, true);
    add_mlp(list, model, prefix + name.norm_2, prefix + name.mlp);
  }
}

// Tensors of the first `blocks` blocks.
int tensors_of_blocks(const ModelConfig& model, int blocks) {
  std::array<int, layer_kinds> tensors{};
  int sum = 0;
  for (int b = 0; b < blocks; ++b) {
    int& of_kind = tensors[static_cast<std::size_t>(layer_kind(model, b))];
    if (of_kind == 0) {
      ListBuilder list(model);
      add_block(list, model, b, 0);
      of_kind = static_cast<int>(list.entries.size());
    }
    sum += of_kind;
  }
  return sum;
}

}  // namespace

std::vector<ParameterEntry> parameter_list(const ModelConfig& model, const StageLayers& layers) {
  ListBuilder list(model);
  const Architecture kind = architecture(model);
  const Names name = names(model);
  if (layers.embedding) {
    list.matrix(name.tokens, model.vocab, model.width, Start::normal);
    if (!kind.rotary) list.matrix("transformer.wpe", model.context, model.width, Start::normal);
  }
  const int first = kind.rotary ? 1 : 2;
  list.at(first + tensors_of_blocks(model, layers.first_block));
  for (int b = 0; b < layers.blocks; ++b) add_block(list, model, layers.first_block + b, StageLayerNumbers::block(b));
  if (layers.head) {
    list.layer(StageLayerNumbers::head(layers));
    list.at(first + tensors_of_blocks(model, model.layers));
    list.norm(name.norm);
    if (!model.tied) list.matrix("lm_head", model.vocab, model.width, Start::normal);
  }
  return list.entries;
}

std::vector<ParameterEntry> parameter_list(const ModelConfig& model) {
  return parameter_list(model, {true, 0, model.layers, true});
}

std::size_t buffer_floats(const std::vector<ParameterEntry>& entries) {
  return entries.empty() ? 0 : padded(entries.back().offset + entries.back().size);
}

}  // namespace minipipe::core
