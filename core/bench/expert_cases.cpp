#include <algorithm>

#include "core/bench/branches.hpp"
#include "core/bench/kernel_case.hpp"
#include "core/kernels/expert_dispatch.hpp"
#include "core/kernels/router.hpp"
#include "core/kernels/swiglu.hpp"
#include "core/linalg/gemm.hpp"

namespace minipipe::core {

namespace {

// The arrays of one mixture, with rows already sent to their experts as random logits say.
struct Mixture {
  std::int64_t rows, width, experts, choices, hidden, pairs, capacity;
  OwnedMatrix<float> logits, probabilities, weights;
  OwnedMatrix<std::int32_t> chosen;
  OwnedVector<std::int32_t> counts, starts, slots, slot_pairs, workspace;
  ExpertPlan plan;
  std::vector<std::int32_t> offsets;  // on the host

  Mixture(const ExecutionSpace& space, const BenchShape& shape)
      : rows(shape.rows()),
        width(shape.model.width),
        experts(shape.model.experts),
        choices(shape.model.expert_choices),
        hidden(expert_width(shape.model)),
        pairs(rows * choices),
        capacity(shape.model.expert_capacity > 0 ? expert_capacity(shape.model.expert_capacity, rows, choices, experts) : 0),
        logits(random_matrix(space, rows, experts)),
        probabilities("minipipe::bench::probabilities", rows, experts),
        weights("minipipe::bench::weights", rows, choices),
        chosen("minipipe::bench::chosen", rows, choices),
        counts("minipipe::bench::counts", experts),
        starts("minipipe::bench::offsets", experts + 1),
        slots("minipipe::bench::slots", pairs),
        slot_pairs("minipipe::bench::pairs", pairs),
        workspace("minipipe::bench::places", expert_workspace(rows, experts)),
        plan{counts, starts, slots, slot_pairs} {
    router_forward<float>(space, chosen, weights, probabilities, logits);
    plan_experts(space, plan, workspace, chosen, capacity);
    read_offsets(space, offsets, starts);
  }
  std::int64_t kept() const { return offsets.back(); }  // pairs that no capacity dropped
};

KernelCase copy_case(const std::string& name, const std::vector<std::int64_t>& extents, std::int64_t moved,
                     std::int64_t distinct, std::function<void()> run) {
  KernelCase c;
  c.name = name;
  c.shape = shape_text(extents);
  c.bytes = static_cast<double>(4 * moved);
  c.working_set = static_cast<double>(4 * distinct);
  c.run = std::move(run);
  return c;
}

// Rows x experts, and integers.
std::vector<KernelCase> router_cases(const ExecutionSpace& space, const Mixture& m) {
  const std::vector<std::int64_t> shape{m.rows, m.experts, m.choices};
  const std::int64_t all = m.rows * m.experts;
  const auto weights_gradient = random_matrix(space, m.rows, m.choices);
  const OwnedMatrix<float> logits_gradient("minipipe::bench::gradient", m.rows, m.experts);
  const OwnedVector<float> load("minipipe::bench::load", m.experts), mean("minipipe::bench::mean", m.experts);
  const OwnedVector<double> loss("minipipe::bench::loss", 1);
  constexpr float balance = 0.01f;
  std::vector<KernelCase> cases;
  const auto add = [&](const std::string& name, std::int64_t floats, std::function<void()> run) {
    cases.push_back(copy_case(name, shape, floats, floats, std::move(run)));
  };
  add("router::forward", 2 * all + 2 * m.pairs,
      [=] { router_forward<float>(space, m.chosen, m.weights, m.probabilities, m.logits); });
  add("expert_dispatch::plan", 3 * m.pairs + 2 * m.experts + 1,
      [=] { plan_experts(space, m.plan, m.workspace, m.chosen, m.capacity); });
  // The mean is an output, too; the loss counts as two floats.
  add("router::balance", all + 3 * m.experts + 2,
      [=] { router_balance<float>(space, loss, load, mean, m.counts, m.probabilities); });
  cases.back().run();
  add("router::backward", 2 * all + 3 * m.pairs + m.experts, [=] {
    router_backward<float>(space, logits_gradient, weights_gradient, m.chosen, m.weights, m.probabilities, load, balance);
  });
  return cases;
}

// Rows to their experts and back. The lists of slots or of pairs are read once each.
std::vector<KernelCase> dispatch_cases(const ExecutionSpace& space, const Mixture& m) {
  const std::vector<std::int64_t> shape{m.rows, m.choices, m.width};
  const std::int64_t rows = m.rows * m.width, slots = m.kept() * m.width;
  const auto stream = random_matrix(space, m.rows, m.width), gathered = random_matrix(space, m.pairs, m.width);
  const auto gradient = random_matrix(space, m.pairs, m.width);
  const OwnedMatrix<float> weights_gradient("minipipe::bench::gradient", m.rows, m.choices);
  return {
      copy_case("expert_dispatch::gather", shape, rows + slots + m.pairs, rows + slots + m.pairs,
                [=] { gather_rows<float>(space, gathered, stream, m.plan); }),
      // Added to what is there, which so grows slowly.
      copy_case("expert_dispatch::gather_backward", shape, 2 * rows + slots + m.pairs, rows + slots + m.pairs,
                [=] { gather_rows_backward<float>(space, stream, gathered, m.plan, true); }),
      copy_case("expert_dispatch::combine", shape, rows + slots + 2 * m.pairs, rows + slots + 2 * m.pairs,
                [=] { combine_rows<float>(space, stream, gathered, m.weights, m.plan); }),
      copy_case("expert_dispatch::combine_backward", shape, rows + 2 * slots + 3 * m.pairs, rows + 2 * slots + 3 * m.pairs,
                [=] { combine_rows_backward<float>(space, gradient, weights_gradient, stream, gathered, m.weights, m.plan); })};
}

std::vector<KernelCase> activation_cases(const ExecutionSpace& space, const Mixture& m) {
  const auto a = random_matrix(space, m.kept(), m.hidden), b = random_matrix(space, m.kept(), m.hidden);
  const auto c = random_matrix(space, m.kept(), m.hidden), d = random_matrix(space, m.kept(), m.hidden);
  const std::vector<std::int64_t> shape{m.kept(), m.hidden};
  const std::int64_t floats = m.kept() * m.hidden;
  // In the backward the gradient of the output lies where that of the second input comes: here it is written elsewhere, so that
  // it stays as it is.
  const auto e = random_matrix(space, m.kept(), m.hidden);
  return {copy_case("swiglu::forward expert", shape, 3 * floats, 3 * floats,
                    [=] { swiglu_forward<float>(space, flatten(c), flatten(a), flatten(b)); }),
          copy_case("swiglu::backward expert", shape, 5 * floats, 5 * floats,
                    [=] { swiglu_backward<float>(space, flatten(c), flatten(d), flatten(e), flatten(a), flatten(b)); })};
}

// One product after the other, each with its expert's rows and weights [out, in].
template <class T>
void add_products(const ExecutionSpace& space, const Mixture& m, const std::string& layer, std::int64_t out, std::int64_t in,
                  std::vector<KernelCase>& cases) {
  constexpr auto element = static_cast<std::int64_t>(sizeof(T)), wide = static_cast<std::int64_t>(sizeof(float));
  const auto input = random_values<T>(space, m.pairs, in), output = random_values<T>(space, m.pairs, out);
  const auto weights = random_values<T>(space, m.experts * out, in);
  const auto gradients = random_matrix(space, m.experts * out, in);
  const auto for_each = [offsets = m.offsets, out](const auto& body) {
    for (std::size_t e = 0; e + 1 < offsets.size(); ++e) {
      const std::int64_t first = offsets[e], count = offsets[e + 1] - first;
      if (count > 0) body(first, count, static_cast<std::int64_t>(e) * out);
    }
  };
  const auto rows = [](const auto& matrix, std::int64_t first, std::int64_t count) {
    const auto columns = static_cast<std::int64_t>(matrix.extent(1));
    return slice_matrix(flatten(matrix), first * columns, count, columns);
  };
  // Experts without rows take no part.
  std::int64_t busy = 0;
  for_each([&](std::int64_t, std::int64_t, std::int64_t) { ++busy; });
  KernelCase c;
  c.limit = std::is_same_v<T, bf16> ? Limit::gemm_bf16 : Limit::gemm;
  c.shape = shape_text({m.kept(), out, in}) + ", " + std::to_string(busy) + " experts";
  c.flops = 2.0 * static_cast<double>(m.kept()) * static_cast<double>(out) * static_cast<double>(in);
  c.working_set = c.bytes = static_cast<double>(element * (m.kept() * (in + out) + busy * out * in));
  c.name = "linear::forward " + layer;
  c.run = [=] {
    for_each([&](std::int64_t first, std::int64_t count, std::int64_t weight) {
      gemm<T>(space, false, true, 1, rows(input, first, count), rows(weights, weight, out), 0, rows(output, first, count));
    });
  };
  cases.push_back(c);
  c.name = "linear::backward_input " + layer;
  c.run = [=] {
    for_each([&](std::int64_t first, std::int64_t count, std::int64_t weight) {
      gemm<T>(space, false, false, 1, rows(output, first, count), rows(weights, weight, out), 0, rows(input, first, count));
    });
  };
  cases.push_back(c);
  c.name = "linear::backward_weight " + layer;
  c.working_set += static_cast<double>((wide - element) * busy * out * in);
  c.bytes += static_cast<double>((2 * wide - element) * busy * out * in);
  c.run = [=] {
    for_each([&](std::int64_t first, std::int64_t count, std::int64_t weight) {
      gemm<T, float>(space, true, false, 1, rows(output, first, count), rows(input, first, count), 1,
                     rows(gradients, weight, out));
    });
  };
  cases.push_back(c);
}

}  // namespace

std::vector<KernelCase> expert_cases(const ExecutionSpace& space, const BenchShape& shape) {
  if (!branches_of(shape.model).experts) return {};
  const Mixture mixture(space, shape);
  std::vector<KernelCase> cases = router_cases(space, mixture);
  std::ranges::move(dispatch_cases(space, mixture), std::back_inserter(cases));
  std::ranges::move(activation_cases(space, mixture), std::back_inserter(cases));
  for (const bool down : {false, true}) {
    const std::int64_t out = down ? mixture.width : mixture.hidden, in = down ? mixture.hidden : mixture.width;
    const auto add = shape.bf16 ? add_products<bf16> : add_products<float>;
    add(space, mixture, down ? "expert_down" : "expert_up", out, in, cases);
  }
  return cases;
}

}  // namespace minipipe::core
