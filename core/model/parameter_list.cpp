#include "core/model/parameter_list.hpp"

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
  void norm(const std::string& name) {
    add(name + ".weight", {model_.width}, Start::ones, 0, NeuronAxis::none);
    if (!kind_.rms_norm) add(name + ".bias", {model_.width}, Start::zeros, 0, NeuronAxis::none);
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
  std::string tokens, blocks, norm_1, norm_2, attention_out, mlp_out, norm;
};

Names names(const Architecture& kind) {
  if (kind.fused_qkv) {
    return {"transformer.wte", "transformer.h.", "ln_1", "ln_2", "attn.c_proj", "mlp.c_proj", "transformer.ln_f"};
  }
  return {"model.embed_tokens", "model.layers.", "input_layernorm", "post_attention_layernorm",
          "self_attn.o_proj",   "mlp.down_proj", "model.norm"};
}

void add_block(ListBuilder& list, const ModelConfig& model, int block, int layer) {
  const Architecture kind = architecture(model);
  const Names name = names(kind);
  const std::string prefix = name.blocks + std::to_string(block) + ".";
  const int width = model.width, hidden = hidden_width(model);
  list.layer(layer);
  list.norm(prefix + name.norm_1);
  if (kind.fused_qkv) {
    list.linear(prefix + "attn.c_attn", 3 * width, width, Start::normal, 3);
  } else {
    list.linear(prefix + "self_attn.q_proj", width, width, Start::normal);
    list.linear(prefix + "self_attn.k_proj", kv_width(model), width, Start::normal);
    list.linear(prefix + "self_attn.v_proj", kv_width(model), width, Start::normal);
  }
  list.linear(prefix + name.attention_out, width, width, Start::normal_residual);
  list.layer(layer, true);
  list.norm(prefix + name.norm_2);
  if (kind.gated_mlp) {
    list.linear(prefix + "mlp.gate_proj", hidden, width, Start::normal, 1, NeuronAxis::rows);
    list.linear(prefix + "mlp.up_proj", hidden, width, Start::normal, 1, NeuronAxis::rows);
  } else {
    list.linear(prefix + "mlp.c_fc", hidden, width, Start::normal, 1, NeuronAxis::rows);
  }
  list.linear(prefix + name.mlp_out, width, hidden, Start::normal_residual, 1, NeuronAxis::columns);
}

int tensors_of_block(const ModelConfig& model) {
  ListBuilder list(model);
  add_block(list, model, 0, 0);
  return static_cast<int>(list.entries.size());
}

}  // namespace

std::vector<ParameterEntry> parameter_list(const ModelConfig& model, const StageLayers& layers) {
  ListBuilder list(model);
  const Architecture kind = architecture(model);
  const Names name = names(kind);
  if (layers.embedding) {
    list.matrix(name.tokens, model.vocab, model.width, Start::normal);
    if (!kind.rotary) list.matrix("transformer.wpe", model.context, model.width, Start::normal);
  }
  const int first = kind.rotary ? 1 : 2, per_block = tensors_of_block(model);
  list.at(first + per_block * layers.first_block);
  for (int b = 0; b < layers.blocks; ++b) add_block(list, model, layers.first_block + b, StageLayerNumbers::block(b));
  if (layers.head) {
    list.layer(StageLayerNumbers::head(layers));
    list.at(first + per_block * model.layers);
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
