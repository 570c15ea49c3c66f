#include "core/model/parameter_list.hpp"

#include "core/model/padding.hpp"

namespace minipipe::core {

namespace {

class ListBuilder {
 public:
  void add(std::string name, std::vector<int> shape, Start start, int global_index, int hidden_maps = 0) {
    ParameterEntry entry;
    entry.name = "transformer." + name;
    entry.size = 1;
    for (const int extent : shape) entry.size *= static_cast<std::size_t>(extent);
    entry.offset = end_;
    entry.decay = shape.size() > 1;
    entry.shape = std::move(shape);
    entry.global_index = global_index;
    entry.start = start;
    entry.hidden_maps = hidden_maps;
    end_ += padded(entry.size);
    entries.push_back(std::move(entry));
  }

  void add_block(int block, int width) {
    const std::string h = "h." + std::to_string(block) + ".";
    int index = 2 + block_parameters * block;
    add(h + "ln_1.weight", {width}, Start::ones, index++);
    add(h + "ln_1.bias", {width}, Start::zeros, index++);
    add(h + "attn.c_attn.weight", {3 * width, width}, Start::normal, index++, 3);
    add(h + "attn.c_attn.bias", {3 * width}, Start::zeros, index++);
    add(h + "attn.c_proj.weight", {width, width}, Start::normal_residual, index++, 1);
    add(h + "attn.c_proj.bias", {width}, Start::zeros, index++);
    add(h + "ln_2.weight", {width}, Start::ones, index++);
    add(h + "ln_2.bias", {width}, Start::zeros, index++);
    add(h + "mlp.c_fc.weight", {4 * width, width}, Start::normal, index++, 1);
    add(h + "mlp.c_fc.bias", {4 * width}, Start::zeros, index++);
    add(h + "mlp.c_proj.weight", {width, 4 * width}, Start::normal_residual, index++, 1);
    add(h + "mlp.c_proj.bias", {width}, Start::zeros, index++);
  }

  std::vector<ParameterEntry> entries;

 private:
  std::size_t end_ = 0;
};

}  // namespace

std::vector<ParameterEntry> parameter_list(const ModelConfig& model, const StageLayers& layers) {
  ListBuilder list;
  const int width = model.width;
  if (layers.embedding) {
    list.add("wte.weight", {model.vocab, width}, Start::normal, 0);
    list.add("wpe.weight", {model.context, width}, Start::normal, 1);
  }
  for (int b = 0; b < layers.blocks; ++b) list.add_block(layers.first_block + b, width);
  if (layers.head) {
    int index = 2 + block_parameters * model.layers;
    list.add("ln_f.weight", {width}, Start::ones, index++);
    list.add("ln_f.bias", {width}, Start::zeros, index++);
    if (!model.tied) {
      list.add("", {model.vocab, width}, Start::normal, index++);
      list.entries.back().name = "lm_head.weight";
    }
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
