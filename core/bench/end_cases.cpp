#include <algorithm>
#include <set>

#include "core/bench/kernel_case.hpp"
#include "core/kernels/cross_entropy.hpp"
#include "core/kernels/embedding.hpp"

namespace minipipe::core {

namespace {

std::int64_t different(const OwnedVector<std::int32_t>& tokens) {
  const auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), tokens);
  Kokkos::deep_copy(host, tokens);
  return static_cast<std::int64_t>(std::set<std::int32_t>(host.data(), host.data() + host.size()).size());
}

}  // namespace

std::vector<KernelCase> end_cases(const ExecutionSpace& space, const BenchShape& shape) {
  const std::int64_t rows = shape.rows(), width = shape.model.width, vocab = shape.model.vocab;
  const std::int64_t sequence = shape.train.sequence, batch = shape.train.microbatch_size;
  const std::int64_t positions = architecture(shape.model).rotary ? 0 : sequence;
  const OwnedVector<std::int32_t> tokens = random_tokens(rows, shape.model.vocab);
  const ConstMatrix<std::int32_t> token_matrix(tokens.data(), batch, sequence);
  const auto table = random_matrix(space, vocab, width), place = random_matrix(space, positions, width);
  const auto table_gradient = random_matrix(space, vocab, width), place_gradient = random_matrix(space, positions, width);
  const auto out = random_matrix(space, rows, width);
  const std::int64_t looked_up = different(tokens);

  KernelCase c;
  c.shape = shape_text({rows, width, vocab});
  c.name = "embedding::forward";
  c.working_set = c.bytes = static_cast<double>(4 * width * (rows + looked_up + positions));
  // `tokens` is named so that the case owns what token_matrix points to.
  c.run = [=] {
    static_cast<void>(tokens);
    embedding_forward<float>(space, out, token_matrix, table, place);
  };
  std::vector<KernelCase> cases{c};
  c.name = "embedding::backward";
  c.bytes = static_cast<double>(4 * width * (rows + 2 * looked_up + 2 * positions));
  c.run = [=] {
    static_cast<void>(tokens);
    embedding_backward<float>(space, table_gradient, place_gradient, out, token_matrix);
  };
  cases.push_back(c);

  const auto logits = random_matrix(space, rows, vocab);
  const OwnedVector<float> losses("minipipe::bench::losses", rows);
  c.shape = shape_text({rows, vocab});
  c.name = "cross_entropy::loss";
  c.working_set = c.bytes = static_cast<double>(4 * rows * vocab);
  c.run = [=] { cross_entropy_loss<float>(space, losses, logits, tokens); };
  cases.push_back(c);
  c.name = "cross_entropy::gradient";
  c.bytes = static_cast<double>(8 * rows * vocab);
  // In place: after the first call the logits are small, and their softmax is nearly uniform.
  c.run = [=] { cross_entropy_gradient<float>(space, losses, logits, tokens, 1e-3f); };
  cases.push_back(c);
  return cases;
}

}  // namespace minipipe::core
