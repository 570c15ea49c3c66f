#pragma once

#include <string>

namespace minipipe::core {

// The network of a run, before it is split into stages. Field names are those of the deck's [model] block.
struct ModelConfig {
  std::string family = "gpt2";
  int layers = 0;        // transformer blocks
  int width = 0;         // features per token
  int heads = 0;         // attention heads; width / heads features each
  int vocab = 0;         // tokens are 0 .. vocab-1
  int context = 0;       // the longest sequence; rows of the position table where there is one
  bool tied = false;     // the head uses the token embedding's matrix
  double dropout = 0.0;  // probability that an element is dropped, in [0, 1)
  int kv_heads = 0;      // heads of keys and values, each shared by heads / kv_heads query heads; 0: as many as heads
  int hidden = 0;        // features inside the MLP; 0: the family's rule
};

// What distinguishes the families; everything else is common.
//   gpt2:  LayerNorm, learned positions, biases, GELU, one fused projection to query, key and value (Radford et al. 2019).
//   llama: RMSNorm, rotary positions, no biases, SwiGLU, three projections, grouped-query attention (Touvron et al.,
//          arXiv 2302.13971 and 2307.09288).
struct Architecture {
  bool rms_norm = false;   // else LayerNorm
  bool rotary = false;     // else a position table
  bool biases = true;      // of linear layers
  bool gated_mlp = false;  // SwiGLU, else GELU
  bool fused_qkv = true;
};
Architecture architecture(const ModelConfig& model);

// The fields with their defaults filled in (hidden width: see mlp_width).
int kv_heads(const ModelConfig& model);
int hidden_width(const ModelConfig& model);
inline int head_size(const ModelConfig& model) { return model.width / model.heads; }
inline int kv_width(const ModelConfig& model) { return kv_heads(model) * head_size(model); }

// What one microbatch looks like.
struct TrainShape {
  int microbatch_size = 0;  // sequences per microbatch
  int sequence = 0;         // tokens per sequence

  int rows() const { return microbatch_size * sequence; }
};

// Throws InputError naming the deck key, its value and the remedy if the model cannot be built or run with this shape on
// this number of stages.
void validate(const ModelConfig& model, const TrainShape& shape, int stages);

}  // namespace minipipe::core
