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

// More rows than a device's team looks at in one go, some tokens in most of them, others rare, in places near and far.
TYPED_TEST(Embedding, ManyRowsAreAddedInTheirOrder) {
  using T = TypeParam;
  const std::int64_t vocabulary = 700, columns = 3, sequence = 5003;
  for (const int kind : {0, 1, 2}) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequence));
    for (std::int64_t i = 0; i < sequence; ++i) {
      tokens[i] = static_cast<std::int32_t>(kind == 0 ? 130 : kind == 1 ? i * i % vocabulary : i % 11 * 128 % vocabulary);
    }
    const Array<T> gradient(random_numbers(vocabulary * columns, 1)), none(0), dy(random_numbers(sequence * columns, 2));
    std::vector<T> expected = gradient.exact();
    const std::vector<T> added = dy.exact();
    for (std::int64_t i = 0; i < sequence * columns; ++i) expected[tokens[i / columns] * columns + i % columns] += added[i];
    embedding_backward<T>({}, gradient.matrix(vocabulary, columns), none.matrix(0, 0), dy.matrix(sequence, columns),
                          slice_matrix<std::int32_t>(integers(tokens), 0, 1, sequence));
    EXPECT_EQ(gradient.exact(), expected);
  }
}

}  // namespace minipipe::core::testing
