// Forward and backward passes of a stage.
#include "core/model/stage_passes.hpp"

#include <algorithm>
#include <string>

#include "core/kernels/elementwise.hpp"
#include "core/model/fetch_order.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

void KokkosStage::Implementation::begin(std::int64_t microbatch, bool training) {
  if (sharded() && exchange == nullptr) {
    throw RunError("a stage whose parameters are sharded needs an exchange between its replicas before the first pass");
  }
  microbatch_ = microbatch;
  context.microbatch = options.replication.global_microbatch(microbatch);
  context.training = training;
}

void KokkosStage::Implementation::gradient_done(int layer, bool last) {
  if (exchange == nullptr) return;
  exchange->gradient_done(layer, last);
  exchange->progress();
}

void KokkosStage::Implementation::load_batch(BatchSource& from, int slot) {
  if (layout.slot_integers == 0) return;
  std::int32_t* host = host_integers.data() + static_cast<std::size_t>(slot) * layout.slot_integers;
  from.batch(context.microbatch, layers().embedding ? host + layout.tokens : nullptr,
             layers().head ? host + layout.targets : nullptr);
  if (layers().head) {
    counted = std::count_if(host + layout.targets, host + layout.targets + rows(), [](std::int32_t t) { return t >= 0; });
    const std::int64_t told = from.counted_tokens(context.microbatch);
    if (counted != (told < 0 ? rows() : told)) {
      throw RunError("microbatch " + std::to_string(context.microbatch) + " has " + std::to_string(counted) +
                     " counted tokens, but its source says " + std::to_string(told < 0 ? rows() : told));
    }
  }
  if constexpr (!on_host) {
    using Host = Kokkos::View<const std::int32_t*, Kokkos::LayoutRight, HostSpace, Unmanaged>;
    Kokkos::deep_copy(space, integers.slot(slot), Host(host, layout.slot_integers));
  }
}

template <class T>
KokkosStage::Passes<T>::Passes(const KokkosStageOptions& given, BatchSource& batches)
    : Implementation(given, batches), copies_(store, versions) {
  for (int b = 0; b < versions.buffers(); ++b) {
    const auto buffer_of = [&](int layer) { return b == 0 ? store.layer_weights(layer) : versions.buffer(b); };
    weights_.emplace_back(by_layer(options.layers, buffer_of), store.entries(), options.model, options.layers,
                          computed_branches(layout.shares), copies_.version(b));
  }
}

template <class T>
const StageTensors<T>& KokkosStage::Passes<T>::weights(int version) {
  copies_.refresh(space, version);
  return weights_[version];
}

template <class T>
typename KokkosStage::Passes<T>::Fetches KokkosStage::Passes<T>::forward_fetches() {
  return {*this, forward_fetch_order(layers(), tied_head())};
}

template <class T>
typename KokkosStage::Passes<T>::Fetches KokkosStage::Passes<T>::backward_fetches() {
  return {*this, backward_fetch_order(layers(), tied_head())};
}

// Where the output of the layer before block `block` goes (block = number of blocks: the layer before the head): to the next
// branch that is computed.
template <class T>
Matrix<T> KokkosStage::Passes<T>::input_of(int block, int slot, int output) const {
  const int width = options.model.width;
  for (int b = block; b < layers().blocks; ++b) {
    if (layout.shares[b].any()) return memory(slot).matrix(layout.blocks[b].input(), width);
  }
  if (layers().head) return memory(slot).matrix(layout.head.input, width);
  return message(options.messages.activation_out, output);
}

template <class T>
void KokkosStage::Passes<T>::run_forward(BatchSource& from, int slot, int input, int output, int version) {
  load_batch(from, slot);
  const StageTensors<T>& with = weights(version);
  Fetches weights_of = forward_fetches();
  if (layers().embedding) {
    weights_of.next();
    embedding_layer_forward<T>(context, with.embedding, tokens(slot), input_of(0, slot, output));
    progress();
  } else {
    copy<T>(space, flatten(input_of(0, slot, output)), flatten(message(options.messages.activation_in, input)));
  }
  for (int b = 0; b < layers().blocks; ++b) {
    weights_of.next();
    if (!layout.shares[b].any()) continue;
    block_forward<T>(context, layers().first_block + b, with.blocks[b], layout.blocks[b], memory(slot),
                     input_of(b + 1, slot, output));
    progress();
  }
  if (layers().head) {
    weights_of.next();
    head_norm<T>(context, with.head, layout.head, memory(slot));
    if (tied_head()) weights_of.next();
    head_losses<T>(context, with.head, layout.head, memory(slot), targets(slot), token_losses);
  }
}

template <class T>
void KokkosStage::Passes<T>::run_backward_input(int slot, int gradient_input, int gradient_output, bool whole, int version) {
  const StageTensors<T>& with = weights(version);
  Fetches weights_of = backward_fetches();
  const Matrix<T> gradient =
      layers().embedding ? running_gradient(slot) : message(options.messages.gradient_out, gradient_output);
  if (layers().head) {
    const float scale = static_cast<float>(1.0 / (static_cast<double>(rows()) * static_cast<double>(options.window)));
    const bool logits_again = layout.head.kind == HeadLogits::again;
    weights_of.next();
    if (logits_again) gradient_begins(StageLayerNumbers::head(layers()));
    head_backward_logits<T>(context, with.head, layout.head, layout.head_gradient, memory(slot), targets(slot), scale,
                            token_losses, gradients.head.weight);
    if (tied_head()) weights_of.next();
    head_backward_norm<T>(context, with.head, layout.head, layout.head_gradient, memory(slot), gradient);
    progress();
    if (logits_again) {
      head_norm_backward_weight<T>(context, gradients.head, layout.head, layout.head_gradient, memory(slot));
      gradient_done(StageLayerNumbers::head(layers()), last_of_window());
    } else if (whole) {
      head_weight(slot);
    }
  } else {
    copy<T>(space, flatten(gradient), flatten(message(options.messages.gradient_in, gradient_input)));
  }
  for (int b = layers().blocks - 1; b >= 0; --b) {
    weights_of.next();
    const int layer = StageLayerNumbers::block(b), number = layers().first_block + b;
    const bool any = layout.shares[b].any();
    if (layout.whole_blocks) {
      gradient_begins(layer);
      if (any) {
        whole_backward_others<T>(context, number, with.blocks[b], gradients.blocks[b], layout.blocks[b],
                                 layout.block_gradients[b], memory(slot), gradient);
        progress();
        whole_backward_attention<T>(context, number, with.blocks[b], gradients.blocks[b], layout.blocks[b],
                                    layout.block_gradients[b], memory(slot), gradient);
      }
      gradient_done(layer, last_of_window());
      continue;
    }
    if (any) {
      block_backward_input<T>(context, number, with.blocks[b], layout.blocks[b], layout.block_gradients[b], memory(slot),
                              gradient);
      progress();
    }
    if (whole) block_weight(b, slot);
  }
  if (whole && layers().embedding) embedding_weight(slot);
}

template <class T>
void KokkosStage::Passes<T>::run_backward_weight(int slot) {
  if (layers().head) head_weight(slot);
  for (int b = layers().blocks - 1; b >= 0; --b) block_weight(b, slot);
  if (layers().embedding) embedding_weight(slot);
}

// A tied head's matrix belongs to the embedding. Where layers have gradient buffers in turn, each part is handed on for itself.
template <class T>
void KokkosStage::Passes<T>::head_weight(int slot) {
  const int layer = StageLayerNumbers::head(layers());
  const bool apart = tied_head() && sharded();
  gradient_begins(layer);
  if (!apart) head_matrix_backward_weight<T>(context, gradients.head, layout.head, memory(slot));
  head_norm_backward_weight<T>(context, gradients.head, layout.head, layout.head_gradient, memory(slot));
  gradient_done(layer, last_of_window());
  if (!apart) return;
  gradient_begins(StageLayerNumbers::embedding);
  head_matrix_backward_weight<T>(context, gradients.head, layout.head, memory(slot));
  gradient_done(StageLayerNumbers::embedding, false);
}

template <class T>
void KokkosStage::Passes<T>::block_weight(int b, int slot) {
  const int layer = StageLayerNumbers::block(b);
  gradient_begins(layer);
  if (layout.shares[b].any()) {
    block_backward_weight<T>(context, gradients.blocks[b], layout.blocks[b], layout.block_gradients[b], memory(slot));
  }
  gradient_done(layer, last_of_window());
}

template <class T>
void KokkosStage::Passes<T>::embedding_weight(int slot) {
  gradient_begins(StageLayerNumbers::embedding);
  embedding_layer_backward_weight<T>(context, gradients.embedding, tokens(slot), running_gradient(slot));
  gradient_done(StageLayerNumbers::embedding, last_of_window());
}

template class KokkosStage::Passes<float>;
template class KokkosStage::Passes<bf16>;

}  // namespace minipipe::core
