#include "core/kernels/embedding.hpp"

#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

template <class T>
class Embedding : public ::testing::Test {};
TYPED_TEST_SUITE(Embedding, Scalars);

TYPED_TEST(Embedding, ForwardAddsRowsAndBackwardAddsInRowOrder) {
  using T = TypeParam;
  const int vocabulary = 11, context = 40;
  for (const auto& [batch, sequence, columns] : {std::array<int, 3>{1, 1, 1}, {2, 7, 5}, {3, 33, 130}}) {
    std::vector<std::int32_t> tokens(batch * sequence);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(i * i % 7);  // many repeats; 7.. never occur
    }
    const auto ids = integers(tokens);
    const Matrix<std::int32_t> token_matrix = slice_matrix<std::int32_t>(ids, 0, batch, sequence);
    const Array<T> table(random_numbers(vocabulary * columns, 1)), positions(random_numbers(context * columns, 2));
    const Array<T> out(tokens.size() * columns), dy(random_numbers(tokens.size() * columns, 3));
    const Array<T> dtable(random_numbers(vocabulary * columns, 4)), dpositions(random_numbers(context * columns, 5));
    std::vector<T> expected_out(tokens.size() * columns), expected = dtable.exact(), expected_positions = dpositions.exact();
    const std::vector<T> table_values = table.exact(), position_values = positions.exact(), gradient = dy.exact();
    for (std::size_t r = 0; r < tokens.size(); ++r) {
      for (int c = 0; c < columns; ++c) {
        expected_out[r * columns + c] = table_values[tokens[r] * columns + c] + position_values[r % sequence * columns + c];
        expected[tokens[r] * columns + c] += gradient[r * columns + c];
        expected_positions[r % sequence * columns + c] += gradient[r * columns + c];
      }
    }
    embedding_forward<T>({}, out.matrix(tokens.size(), columns), token_matrix, table.matrix(vocabulary, columns),
                         positions.matrix(context, columns));
    embedding_backward<T>({}, dtable.matrix(vocabulary, columns), dpositions.matrix(context, columns),
                          dy.matrix(tokens.size(), columns), token_matrix);
    // The same additions in the same order: equal to the last bit, whatever the number of threads.
    EXPECT_EQ(out.exact(), expected_out);
    EXPECT_EQ(dtable.exact(), expected);
    EXPECT_EQ(dpositions.exact(), expected_positions);
  }
}

}  // namespace minipipe::core::testing
