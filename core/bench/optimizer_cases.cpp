#include <algorithm>
#include <memory>

#include "core/bench/branches.hpp"
#include "core/bench/kernel_case.hpp"
#include "core/kernels/initialise.hpp"
#include "core/kernels/reduce.hpp"
#include "core/model/parameter_store.hpp"
#include "core/optim/adamw.hpp"
#include "core/optim/muon.hpp"

namespace minipipe::core {

namespace {

constexpr double rate = 1e-4;

std::shared_ptr<ParameterStore> make_store(const ExecutionSpace& space, const BenchShape& shape, const StageLayers& layers,
                                           OptimizerKind optimizer) {
  auto store = std::make_shared<ParameterStore>(space, shape.model, layers, shape.seed, optimizer);
  fill_normal<float>(space, store->gradients(), 1e-3, 1, 1);
  return store;
}

// Newton-Schulz: per iteration two products with the matrix on its smaller side, and one of that side's square with itself.
double newton_schulz_flops(const MuonMatrix& matrix, int steps) {
  const auto side = static_cast<double>(std::min(matrix.rows, matrix.columns));
  const auto count = static_cast<double>(matrix.rows * matrix.columns);
  return steps * (2 * 2 * side * count + 2 * side * side * side);
}

KernelCase muon_case(const ExecutionSpace& space, const BenchShape& shape, int layer, const std::string& kind) {
  const auto store = make_store(space, shape, {false, layer, 1, false}, OptimizerKind::muon);
  const auto& matrices = store->optimizer().matrices;
  const auto memory = std::make_shared<MuonMemory<float>>(matrices);
  const MuonOptions options;
  KernelCase c;
  c.name = "muon::update" + kind;
  c.shape = std::to_string(matrices.size()) + " matrices of a block";
  c.limit = Limit::gemm;
  double floats = 0;
  for (const MuonMatrix& matrix : matrices) {
    c.flops += newton_schulz_flops(matrix, options.newton_schulz_steps);
    floats += static_cast<double>(matrix.rows * matrix.columns);
  }
  c.bytes = 4 * 5 * floats;  // parameters and moments to and fro, gradients
  c.working_set = 4 * 3 * floats;
  c.run = [=] {
    muon_update<float>(space, store->parameters(), store->first_moment(), store->gradients(), store->optimizer().matrices,
                       options, 0.1, rate, 1.0, memory->workspace());
  };
  return c;
}

}  // namespace

// The whole model's arrays.
std::vector<KernelCase> adam_cases(const ExecutionSpace& space, const BenchShape& shape) {
  const auto store = make_store(space, shape, {true, 0, shape.model.layers, true}, OptimizerKind::adamw);
  const auto floats = static_cast<std::int64_t>(store->parameters().size());
  const auto make = [&](const std::string& name, int arrays, int distinct, std::function<void()> run) {
    KernelCase c;
    c.name = name;
    c.shape = std::to_string(floats) + " parameters";
    c.bytes = 4.0 * arrays * static_cast<double>(floats);
    c.working_set = 4.0 * distinct * static_cast<double>(floats);
    c.run = std::move(run);
    return c;
  };
  const auto update = [=](auto kernel) {
    kernel(space, store->parameters(), store->first_moment(), store->second_moment(), store->gradients(),
           store->optimizer().ranges, AdamWOptions{}, rate, 10, 1.0);
  };
  const OwnedVector<double> sum("minipipe::bench::sum", 1), workspace("minipipe::bench::sums", sum_workspace(floats));
  return {make("adamw::update", 7, 4, [=] { update(adamw_update<float>); }),
          make("nadam::update", 7, 4, [=] { update(nadam_update<float>); }), make("reduce::sum_of_squares", 1, 1, [=] {
            sum_of_squares<float>(space, sum, store->gradients(), workspace, false);
          })};
}

// The matrices of one block; of each kind where layers differ.
std::vector<KernelCase> muon_cases(const ExecutionSpace& space, const BenchShape& shape) {
  std::vector<KernelCase> cases;
  for (const int layer : first_of_each_kind(shape.model)) {
    const LayerKind kind = layer_kind(shape.model, layer);
    cases.push_back(muon_case(space, shape, layer, kind == LayerKind::transformer ? "" : std::string(" ") + name_of(kind)));
  }
  return cases;
}

}  // namespace minipipe::core
