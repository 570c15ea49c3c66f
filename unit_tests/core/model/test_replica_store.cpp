#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/kernels/reduce.hpp"
#include "core/model/parameter_store.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/model/replicas.hpp"

namespace minipipe::core {
namespace {

const ModelConfig model{"gpt2", 4, 20, 4, 29, 24, false, 0.0};
const StageLayers stage{false, 1, 3, true};

// Values of the model's tensors by name, row-major.
using Tensors = std::map<std::string, std::vector<float>>;

std::vector<float> read(const StoredPart& part) {
  std::vector<float> values(static_cast<std::size_t>(part.rows) * part.columns);
  read_piece(part.array, part.piece, values.data());
  return values;
}

// The same rectangle of a full tensor.
std::vector<float> rectangle(const Tensors& tensors, const StoredPart& part) {
  const std::vector<float>& full = tensors.at(part.name);
  const int width = matrix_shape(part.full_shape).columns;
  std::vector<float> values;
  for (int row = 0; row < part.rows; ++row) {
    const auto begin = full.begin() + (part.row + row) * width + part.column;
    values.insert(values.end(), begin, begin + part.columns);
  }
  return values;
}

Tensors values_of(const ParameterStore& store, std::vector<float> (ParameterStore::*getter)(std::size_t) const) {
  Tensors result;
  for (std::size_t e = 0; e < store.entries().size(); ++e) result[store.entries()[e].name] = (store.*getter)(e);
  return result;
}

// Small integers, so that sums of their squares are exact.
Tensors gradients_like(const Tensors& tensors) {
  Tensors result = tensors;
  int number = 0;
  for (auto& [name, values] : result) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((number + 31 * i) % 17) - 8;
    number += 5;
  }
  return result;
}

ParameterStore plain_store() { return {ExecutionSpace(), model, stage, 3}; }

ParameterStore store_of(const ReplicaOptions& options) {
  return {ExecutionSpace(), model, stage, 3, OptimizerKind::adamw, ReplicaLayout(model, stage, options)};
}

// Gives the gradients that this replica steps their values and all others, which nothing may read, NaN. Values of padding: 0.
void set_gradients(const ParameterStore& store, const Tensors& gradients) {
  const ReplicaLayout& layout = store.layout();
  const float poison = layout.options.sharded() || layout.zero1() ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  Kokkos::deep_copy(store.gradients(), poison);
  for (const Bucket& bucket : layout.buckets) {
    const int number = bucket.number_of(layout.options.replica);
    if (number < 0) continue;
    std::vector<float> order(static_cast<std::size_t>(bucket.floats), 0.0f);
    for (const BucketSlab& part : bucket.slabs) {
      const ParameterEntry& entry = layout.full[part.entry];
      StoredPart slab;
      slab.name = entry.name;
      slab.full_shape = entry.full_shape;
      slab.row = part.slab.full_row;
      slab.column = part.slab.full_column;
      slab.rows = part.slab.rows;
      slab.columns = part.slab.columns;
      const std::vector<float> values = rectangle(gradients, slab);
      std::copy(values.begin(), values.end(), order.begin() + part.begin);
    }
    const bool shards = layout.options.sharded() || layout.zero1();
    const std::int64_t begin = shards ? bucket.shard_begin(number) : 0, end = shards ? bucket.shard_end(number) : bucket.floats;
    Pieces places = cut(bucket.gradients, begin, end);
    for (Piece& piece : places) piece.offset += layout.gradient_layer_offsets[bucket.first_layer];
    if (layout.sharded_gradients()) places = {{bucket.shard_offset, 1, end - begin, 0}};
    std::int64_t at = begin;
    for (const Piece& piece : places) {
      write_piece(store.gradients(), piece, order.data() + at);
      at += piece.floats();
    }
  }
}

class Stores : public ::testing::TestWithParam<ReplicaCase> {
 protected:
  std::vector<ReplicaOptions> replicas() const { return replicas_of(GetParam(), stage); }
};

TEST_P(Stores, StartWithTheValuesOfTheUnsplitModel) {
  const Tensors whole = values_of(plain_store(), &ParameterStore::parameter);
  for (const ReplicaOptions& options : replicas()) {
    const ParameterStore store = store_of(options);
    std::size_t floats = 0;
    for (const StoredPart& part : store.all_parts()) {
      if (part.field == StoredField::value) {
        ASSERT_EQ(read(part), rectangle(whole, part)) << part.name;
        floats += static_cast<std::size_t>(part.rows) * part.columns;
      } else {
        ASSERT_EQ(read(part), std::vector<float>(static_cast<std::size_t>(part.rows) * part.columns, 0.0f));
      }
    }
    std::size_t held = 0;
    for (const ParameterEntry& entry : store.entries()) held += entry.size;
    EXPECT_TRUE(options.sharded() ? floats < held : floats == held);
  }
}

TEST_P(Stores, OwnEveryElementOnce) {
  std::map<std::pair<std::string, StoredField>, std::vector<int>> owners;
  for (const ParameterEntry& entry : parameter_list(model, stage)) {
    for (const StoredField field : {StoredField::value, StoredField::first_moment, StoredField::second_moment}) {
      owners[{entry.name, field}].assign(entry.size, 0);
    }
  }
  for (const ReplicaOptions& options : replicas()) {
    const ParameterStore store = store_of(options);
    for (const StoredPart& part : store.owned_parts()) {
      std::vector<int>& of = owners.at({part.name, part.field});
      const int width = matrix_shape(part.full_shape).columns;
      for (int row = 0; row < part.rows; ++row) {
        for (int column = 0; column < part.columns; ++column) ++of.at((part.row + row) * width + part.column + column);
      }
    }
  }
  for (const auto& [tensor, counts] : owners) EXPECT_EQ(counts, std::vector<int>(counts.size(), 1)) << tensor.first;
}

TEST_P(Stores, GiveBackWhatTheyWereGiven) {
  Tensors tensors = gradients_like(values_of(plain_store(), &ParameterStore::parameter));
  for (const ReplicaOptions& options : replicas()) {
    const ParameterStore store = store_of(options);
    for (const StoredPart& part : store.all_parts()) {
      std::vector<float> values = rectangle(tensors, part);
      for (float& value : values) value += 100.0f * static_cast<float>(part.field);
      write_piece(part.array, part.piece, values.data());
    }
    for (const StoredPart& part : store.owned_parts()) {
      std::vector<float> values = rectangle(tensors, part);
      for (float& value : values) value += 100.0f * static_cast<float>(part.field);
      ASSERT_EQ(read(part), values) << part.name;
    }
  }
}

TEST_P(Stores, AllocateWhatIsPlanned) {
  for (const ReplicaOptions& options : replicas()) {
    const ParameterStore store = store_of(options);
    const ReplicaLayout& layout = store.layout();
    EXPECT_EQ(store.bytes(), planned_parameter_bytes(layout, OptimizerLayout(layout, OptimizerKind::adamw)));
    EXPECT_EQ(store.bytes().optimizer, 2 * static_cast<std::size_t>(layout.moment_floats) * sizeof(float));
    const auto fits = [](const std::vector<ParameterEntry>& entries, int layer, const Vector<float>& array) {
      for (const ParameterEntry& entry : entries) {
        if (entry.layer == layer && entry.offset + entry.size > array.size()) return false;
      }
      return true;
    };
    for (int l = 0; l < StageLayerNumbers::count(stage); ++l) {
      EXPECT_TRUE(fits(store.entries(), l, store.layer_weights(l)));
      EXPECT_TRUE(fits(store.trained(), l, store.layer_gradients(l)));
      const bool evaluated = options.sdp() && (options.sharded() || (l > 0 && l <= stage.blocks));
      EXPECT_TRUE(!evaluated || fits(layout.full, l, store.evaluation_buffer()));
    }
    EXPECT_EQ(store.evaluation_buffer().size() > 0, options.sdp());
    // Where the buffers of gathered layers are large enough, evaluation takes no memory of its own.
    const std::int64_t largest = *std::max_element(layout.full_layer_floats.begin(), layout.full_layer_floats.end());
    bool fits_there = false, is_there = false;
    for (const auto& buffer : store.layer_weight_buffers()) {
      fits_there |= static_cast<std::int64_t>(buffer.size()) >= largest;
      is_there |= buffer.size() > 0 && buffer.data() == store.evaluation_buffer().data();
    }
    EXPECT_EQ(is_there, options.sdp() && fits_there);
  }
}

TEST_P(Stores, CountEveryGradientOnceInNorms) {
  const ExecutionSpace space;
  const OwnedVector<double> result("result", 1), workspace("workspace", 1000);
  const Tensors gradients = gradients_like(values_of(plain_store(), &ParameterStore::parameter));
  std::map<int, double> sums;
  for (const ReplicaOptions& options : replicas()) {
    const ParameterStore store = store_of(options);
    set_gradients(store, gradients);
    int last = -1;
    for (const SquarePart& part : store.owned_squares()) {
      EXPECT_GE(part.global_index, last);
      last = part.global_index;
      const SquareRectangle<float> values[] = {
          {part.array.data() + part.piece.offset, part.piece.rows, part.piece.columns, part.piece.stride}};
      sums_of_squares<float>(space, result, values, workspace);
      sums[part.global_index] += read_scalar(space, result);
    }
  }
  for (const ParameterEntry& entry : parameter_list(model, stage)) {
    double sum = 0;
    for (const float value : gradients.at(entry.name)) sum += static_cast<double>(value) * value;
    EXPECT_EQ(sums.at(entry.global_index), sum) << entry.name;
  }
  EXPECT_EQ(sums.size(), parameter_list(model, stage).size());
}

bool all_zero(const Vector<float>& array, std::vector<bool> used) {
  std::vector<float> values(array.size());
  read_piece(array, {0, 1, static_cast<std::int64_t>(array.size()), 0}, values.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!used[i] && values[i] != 0.0f) return false;
  }
  return true;
}

void step(const ParameterStore& store, OptimizerKind kind) {
  for (int k = 1; k <= 2; ++k) {
    const auto update = kind == OptimizerKind::nadam ? nadam_update<float> : adamw_update<float>;
    update(ExecutionSpace(), store.parameters(), store.first_moment(), store.second_moment(), store.gradients(),
           store.optimizer().ranges, {}, 0.01, k, 0.5);
  }
}

TEST_P(Stores, StepWhatTheyTrainAndNothingElse) {
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::nadam}) {
    const ParameterStore plain = plain_store();
    const Tensors before = values_of(plain, &ParameterStore::parameter), gradients = gradients_like(before);
    set_gradients(plain, gradients);
    step(plain, kind);
    const std::map<StoredField, Tensors> after = {
        {StoredField::value, values_of(plain, &ParameterStore::parameter)},
        {StoredField::first_moment, values_of(plain, &ParameterStore::first_moment)},
        {StoredField::second_moment, values_of(plain, &ParameterStore::second_moment)}};
    for (const ReplicaOptions& options : replicas()) {
      const ParameterStore store = store_of(options);
      set_gradients(store, gradients);
      step(store, kind);
      std::map<StoredField, std::vector<bool>> used;
      used[StoredField::value].resize(store.parameters().size());
      used[StoredField::first_moment].resize(store.first_moment().size());
      used[StoredField::second_moment].resize(store.second_moment().size());
      std::map<std::string, std::vector<bool>> stepped;
      std::vector<StoredPart> parts = store.all_parts();
      // Moments first: they tell what this replica steps.
      std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.field > b.field; });
      for (const StoredPart& part : parts) {
        for (std::int64_t row = 0; row < part.piece.rows; ++row) {
          for (std::int64_t column = 0; column < part.piece.columns; ++column) {
            used[part.field].at(part.piece.offset + row * part.piece.stride + column) = true;
          }
        }
        const int width = matrix_shape(part.full_shape).columns;
        const auto place = [&](std::size_t i) {
          return static_cast<std::size_t>(part.row + static_cast<int>(i) / part.columns) * width + part.column +
                 i % static_cast<std::size_t>(part.columns);
        };
        std::vector<bool>& marks = stepped[part.name];
        marks.resize(before.at(part.name).size());
        std::vector<float> expected = rectangle(after.at(part.field), part);
        const std::vector<float> old = rectangle(before, part);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          if (part.field == StoredField::value && !marks[place(i)]) expected[i] = old[i];
          if (part.field == StoredField::second_moment) marks[place(i)] = true;
        }
        ASSERT_EQ(read(part), expected) << part.name << " " << static_cast<int>(part.field);
      }
      EXPECT_TRUE(all_zero(store.parameters(), used[StoredField::value]));
      EXPECT_TRUE(all_zero(store.first_moment(), used[StoredField::first_moment]));
      EXPECT_TRUE(all_zero(store.second_moment(), used[StoredField::second_moment]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Stores, ::testing::ValuesIn(all_replica_cases()), [](const auto& test) {
  std::string name = test.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

TEST(ReplicaStore, OfOneReplicaCountsWholeTensors) {
  const ParameterStore store = plain_store();
  const std::vector<SquarePart> parts = store.owned_squares();
  ASSERT_EQ(parts.size(), store.entries().size());
  for (std::size_t e = 0; e < parts.size(); ++e) {
    EXPECT_EQ(parts[e].global_index, store.entries()[e].global_index);
    EXPECT_EQ(parts[e].piece, (Piece{static_cast<std::int64_t>(store.entries()[e].offset), 1,
                                     static_cast<std::int64_t>(store.entries()[e].size), 0}));
    EXPECT_EQ(parts[e].array.data(), store.gradients().data());
  }
}

TEST(ReplicaStore, HasNoEntriesInShards) {
  const ParameterStore sharded = store_of({.mode = ReplicaMode::fsdp, .replicas = 2});
  EXPECT_THROW(sharded.parameter(0), RunError);
  EXPECT_THROW(sharded.gradient(0), RunError);
  const ParameterStore zero1 = store_of({.mode = ReplicaMode::zero1, .replicas = 2});
  EXPECT_EQ(zero1.parameter(0), plain_store().parameter(0));
  EXPECT_THROW(zero1.first_moment(0), RunError);
  EXPECT_THROW(zero1.has_second_moment(0), RunError);
}

TEST(ReplicaStore, GivesMuonWholeMatricesOnly) {
  const auto muon = [](const ReplicaOptions& options) {
    return OptimizerLayout(ReplicaLayout(model, stage, options), OptimizerKind::muon);
  };
  EXPECT_THROW(muon({.mode = ReplicaMode::fsdp, .replicas = 2}), InputError);
  EXPECT_THROW(muon({.mode = ReplicaMode::zero1, .replicas = 2}), InputError);
  ReplicaOptions options{.mode = ReplicaMode::sdp, .replicas = 3, .replica = 1, .unit = SdpUnit::neuron, .neuron_groups = 4};
  give_masks(options, stage, 0.5);
  EXPECT_THROW(muon(options), InputError);
  options.unit = SdpUnit::block;
  options.backward_masking = true;
  give_masks(options, stage, 0.67);
  const ReplicaLayout layout(model, stage, options);
  const OptimizerLayout by(layout, OptimizerKind::muon);
  EXPECT_EQ(by.matrices.size(), 2u * 6);
  // The last matrix's parameters lie behind those of a block that is not trained here.
  EXPECT_EQ(layout.forward.size(), layout.trained.size() + 12);
  const auto last = [](const std::vector<ParameterEntry>& entries) {
    const ParameterEntry* found = nullptr;
    for (const ParameterEntry& entry : entries) {
      if (entry.hidden_maps > 0) found = &entry;
    }
    return static_cast<std::int64_t>(found->offset);
  };
  EXPECT_EQ(by.matrices.back().offset, last(layout.forward));
  EXPECT_EQ(by.matrices.back().trained, last(layout.trained));
  EXPECT_LT(by.matrices.back().trained, by.matrices.back().offset);
}

}  // namespace
}  // namespace minipipe::core
