#include "core/bench/branches.hpp"
#include "core/bench/kernel_case.hpp"
#include "core/kernels/bias.hpp"
#include "core/kernels/dropout.hpp"
#include "core/kernels/elementwise.hpp"
#include "core/kernels/gelu.hpp"
#include "core/kernels/reduce.hpp"
#include "core/kernels/rotary.hpp"
#include "core/kernels/swiglu.hpp"
#include "core/model/layer_context.hpp"

namespace minipipe::core {

namespace {

// Where a deck has none, dropout is measured at this probability.
constexpr double usual_dropout = 0.1;

class Cases {
 public:
  Cases(std::int64_t rows, std::int64_t columns) : rows_(rows), columns_(columns) {}

  // `arrays`: of rows x columns that are moved; `distinct`: different ones.
  void add(const std::string& name, bool used, std::int64_t arrays, std::int64_t distinct, std::function<void()> run) {
    KernelCase c;
    c.name = name;
    c.shape = shape_text({rows_, columns_});
    c.used = used;
    c.bytes = static_cast<double>(4 * arrays * rows_ * columns_);
    c.working_set = static_cast<double>(4 * distinct * rows_ * columns_);
    c.run = std::move(run);
    cases_.push_back(std::move(c));
  }
  std::vector<KernelCase> take() { return std::move(cases_); }

 private:
  std::int64_t rows_, columns_;
  std::vector<KernelCase> cases_;
};

// On the residual stream, rows x width.
std::vector<KernelCase> stream_cases(const ExecutionSpace& space, const BenchShape& shape) {
  const std::int64_t rows = shape.rows(), width = shape.model.width;
  const Architecture kind = architecture(shape.model);
  const bool drops = shape.model.dropout > 0;
  const Dropout rate{drops ? shape.model.dropout : usual_dropout, shape.seed, 1, 0};
  const auto a = random_matrix(space, rows, width), b = random_matrix(space, rows, width),
             out = random_matrix(space, rows, width);
  // Values that are added to in place stay as they are, however often.
  const OwnedVector<float> zeros("minipipe::bench::zeros", width), sums("minipipe::bench::sums", width);
  Cases cases(rows, width);
  cases.add("residual::add", false, 3, 3, [=] { residual_add<float>(space, flatten(out), flatten(a), flatten(b)); });
  cases.add("elementwise::copy", !drops, 2, 2, [=] { copy<float>(space, flatten(out), flatten(a)); });
  cases.add("dropout::apply", drops, 2, 2, [=] { dropout<float>(space, flatten(out), flatten(a), rate); });
  // The values are a branch's output, which a step computes anew; here they grow slowly. Without dropout it is a sum.
  const Dropout residual_rate{shape.model.dropout, shape.seed, 1, 0};
  cases.add("dropout::residual_add", true, 3, 2,
            [=] { dropout_residual_add<float>(space, flatten(out), flatten(a), residual_rate); });
  cases.add("bias::add", kind.biases, 2, 1, [=] { bias_add<float>(space, out, zeros); });
  cases.add("bias::gradient", kind.biases, 1, 1, [=] { bias_gradient<float>(space, sums, a); });
  if (branches_of(shape.model).attention && head_size(shape.model) % 2 == 0) {
    const OwnedMatrix<double> table("minipipe::bench::rotary", shape.train.sequence, head_size(shape.model));
    rotary_table(space, table, rotary_base);
    cases.add("rotary::apply", kind.rotary, 2, 1, [=] { rotary_apply<float>(space, a, table, table.extent(0)); });
  }
  return cases.take();
}

// Inside the MLP, rows x hidden.
std::vector<KernelCase> hidden_cases(const ExecutionSpace& space, const BenchShape& shape) {
  if (!branches_of(shape.model).mlp) return {};
  const std::int64_t rows = shape.rows(), hidden = hidden_width(shape.model);
  const bool gated = architecture(shape.model).gated_mlp;
  const auto a = random_matrix(space, rows, hidden), b = random_matrix(space, rows, hidden);
  const auto c = random_matrix(space, rows, hidden), d = random_matrix(space, rows, hidden),
             e = random_matrix(space, rows, hidden);
  const OwnedVector<float> zeros("minipipe::bench::zeros", hidden);
  Cases cases(rows, hidden);
  cases.add("gelu::forward", false, 2, 2, [=] { gelu_forward<float>(space, flatten(c), flatten(a)); });
  cases.add("gelu::bias_forward", !gated, 3, 2, [=] { bias_gelu_forward<float>(space, c, a, zeros); });
  cases.add("gelu::backward", !gated, 3, 3, [=] { gelu_backward<float>(space, flatten(c), flatten(b), flatten(a)); });
  cases.add("swiglu::forward", gated, 3, 3, [=] { swiglu_forward<float>(space, flatten(c), flatten(a), flatten(b)); });
  cases.add("swiglu::backward", gated, 5, 5,
            [=] { swiglu_backward<float>(space, flatten(c), flatten(d), flatten(e), flatten(a), flatten(b)); });
  return cases.take();
}

}  // namespace

std::vector<KernelCase> elementwise_cases(const ExecutionSpace& space, const BenchShape& shape) {
  std::vector<KernelCase> cases = stream_cases(space, shape);
  for (KernelCase& c : hidden_cases(space, shape)) cases.push_back(std::move(c));
  return cases;
}

}  // namespace minipipe::core
