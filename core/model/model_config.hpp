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
  // hybrid: one letter for each layer, see LayerKind; empty for the other families
  std::string pattern = {};
  // Layers '#', mixtures of experts.
  int experts = 8;               // E
  int expert_choices = 2;        // k: experts of each token, at most E
  int expert_hidden = 0;         // features inside an expert; 0: hidden_width() / k in whole 16s
  double expert_capacity = 0.0;  // factor of arXiv 2101.03961, equation 3; 0: no token is dropped
  double balance_loss = 0.01;    // coefficient of the load-balancing loss
  // Layers 'M', state spaces (Mamba-2).
  int state_size = 64;       // S: numbers of a head's state for each of its features
  int state_head_size = 32;  // P; there are state_expand * width / P heads
  int state_groups = 1;      // G: groups of heads that share B and C
  int state_expand = 2;      // features inside the layer over width
  int conv_width = 4;        // K: taps of the short convolution
};

// What a layer of the network is. Families without a pattern have transformer layers only. In a hybrid each letter is one
// pre-norm residual layer, x + branch(norm(x)) (Nemotron-H, arXiv 2504.03624; Jamba, arXiv 2403.19887).
enum class LayerKind {
  transformer,  // attention, then an MLP
  attention,    // '*'
  mlp,          // '-'
  experts,      // '#'
  state_space   // 'M'
};
inline constexpr int layer_kinds = 5;
LayerKind layer_kind(const ModelConfig& model, int block);
// "transformer", "attention", "mlp", "experts", "state_space".
const char* name_of(LayerKind kind);

// What distinguishes the families; everything else is common.
//   gpt2:  LayerNorm, learned positions, biases, GELU, one fused projection to query, key and value (Radford et al. 2019).
//   llama: RMSNorm, rotary positions, no biases, SwiGLU, three projections, grouped-query attention (Touvron et al.,
//          arXiv 2302.13971 and 2307.09288).
//   hybrid: the parts of llama, one branch for each layer as the pattern says.
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
int expert_width(const ModelConfig& model);
inline int state_width(const ModelConfig& model) { return model.state_expand * model.width; }
inline int state_heads(const ModelConfig& model) { return state_width(model) / model.state_head_size; }
// Features that pass the short convolution: x, B and C.
inline int conv_features(const ModelConfig& model) { return state_width(model) + 2 * model.state_groups * model.state_size; }

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
