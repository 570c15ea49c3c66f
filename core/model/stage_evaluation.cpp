// Evaluation of a stage: with its own weights, or of the full model whose layers are assembled from several replicas.
#include "core/kernels/elementwise.hpp"
#include "core/model/stage_passes.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

MicrobatchLoss KokkosStage::Implementation::evaluate(std::int64_t microbatch, BatchSource& from, int input, int output) {
  begin(microbatch, false);
  if (assembles()) {
    run_full_forward(from, input, output);
  } else {
    if (layout.shares != full_shares(options.model, layers())) {
      throw RunError("a replica that holds a part of the model needs an exchange to evaluate the full model");
    }
    run_forward(from, 0, input, output, 0);
  }
  if (!layers().head) return {};
  return losses.now(space, context.microbatch, counted, token_losses, sum_workspace);
}

// The tensors of one layer; the others are meaningless. Waits until earlier layers have been used.
template <class T>
StageTensors<T> KokkosStage::Passes<T>::assembled(int layer) {
  fence(space, "before another layer is assembled in the same memory, because the one before may be in use");
  const Vector<float> buffer = store.evaluation_buffer();
  exchange->assemble(layer, buffer);
  copies_.copy_full_layer(space, layer);
  return {std::vector<Vector<float>>(StageLayerNumbers::count(layers()), buffer),
          store.layout().full,
          options.model,
          layers(),
          computed_branches(full_shares(options.model, layers())),
          copies_.full()};
}

template <class T>
void KokkosStage::Passes<T>::run_full_forward(BatchSource& from, int input, int output) {
  load_batch(from, 0);
  const bool own = layout.evaluation_memory > 0;
  const Vector<float> floats = own ? Vector<float>(evaluation_memory) : Vector<float>(activations.memory());
  const BlockMemory<T> all{floats, workspace(0), scratch, rows()};
  const int width = options.model.width;
  const Matrix<T> stream = all.matrix({Lifetime::kept, 0}, width);  // the input of every block and of the head
  const auto output_of = [&](int b) {
    return b + 1 == layers().blocks && !layers().head ? message(options.messages.activation_out, output) : stream;
  };
  if (layers().embedding) {
    const Matrix<T> first = layers().blocks == 0 && !layers().head ? output_of(-1) : stream;
    const auto forward = [&](const StageTensors<T>& with) {
      embedding_layer_forward<T>(context, with.embedding, tokens(0), first);
    };
    if (sharded()) {
      forward(assembled(StageLayerNumbers::embedding));
    } else {
      forward(weights(0));
    }
  } else {
    copy<T>(space, flatten(output_of(-1)), flatten(message(options.messages.activation_in, input)));
  }
  for (int b = 0; b < layers().blocks; ++b) {
    const StageTensors<T> with = assembled(StageLayerNumbers::block(b));
    block_forward<T>(context, layers().first_block + b, with.blocks[b], layout.evaluation_block, all, output_of(b));
  }
  if (!layers().head) return;
  if (!sharded()) {
    head_forward<T>(context, weights(0).head, layout.evaluation_head, all, targets(0), token_losses);
    return;
  }
  head_norm<T>(context, assembled(StageLayerNumbers::head(layers())).head, layout.evaluation_head, all);
  const int matrix = tied_head() ? StageLayerNumbers::embedding : StageLayerNumbers::head(layers());
  head_losses<T>(context, assembled(matrix).head, layout.evaluation_head, all, targets(0), token_losses);
}

template StageTensors<float> KokkosStage::Passes<float>::assembled(int);
template StageTensors<bf16> KokkosStage::Passes<bf16>::assembled(int);
template void KokkosStage::Passes<float>::run_full_forward(BatchSource&, int, int);
template void KokkosStage::Passes<bf16>::run_full_forward(BatchSource&, int, int);

}  // namespace minipipe::core
