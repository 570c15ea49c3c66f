#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "core/model/padding.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/model/replicas.hpp"

namespace minipipe::core {
namespace {

using ::testing::ElementsAre;

const ModelConfig gpt{"gpt2", 3, 20, 4, 29, 24, false, 0.0};
const ModelConfig llama{.family = "llama", .layers = 3, .width = 16, .heads = 4, .vocab = 29, .context = 24, .hidden = 24};
const StageLayers all{true, 0, 3, true};

std::vector<std::int64_t> positions(const Pieces& pieces) {
  std::vector<std::int64_t> result;
  for (const Piece& piece : pieces) {
    for (std::int64_t row = 0; row < piece.rows; ++row) {
      for (std::int64_t column = 0; column < piece.columns; ++column) {
        result.push_back(piece.offset + row * piece.stride + column);
      }
    }
  }
  return result;
}

TEST(Pieces, MergeAndCutKeepTheLinearOrder) {
  std::mt19937 random(5);
  const auto upto = [&](int most) { return static_cast<std::int64_t>(random() % (most + 1)); };
  for (int trial = 0; trial < 200; ++trial) {
    Pieces pieces;
    std::int64_t end = 0;
    for (int p = 0; p < 5; ++p) {
      const std::int64_t rows = 1 + upto(3), columns = 1 + upto(4), stride = columns + upto(1);
      pieces.push_back({end, rows, columns, stride});
      end += (rows - 1) * stride + columns + (upto(2) == 0 ? 3 : 0);
    }
    const std::vector<std::int64_t> order = positions(pieces);
    const Pieces joined = merged(pieces);
    EXPECT_EQ(positions(joined), order);
    for (std::size_t p = 1; p < joined.size(); ++p) {
      EXPECT_FALSE(joined[p].rows == 1 && joined[p - 1].rows == 1 &&
                   joined[p - 1].offset + joined[p - 1].columns == joined[p].offset);
    }
    const std::int64_t count = floats_of(pieces), begin = upto(static_cast<int>(count)),
                       stop = begin + upto(static_cast<int>(count - begin));
    const std::vector<std::int64_t> part(order.begin() + begin, order.begin() + stop);
    EXPECT_EQ(positions(cut(pieces, begin, stop)), part);
    EXPECT_EQ(positions(cut(joined, begin, stop)), part);
  }
}

TEST(Pieces, NextToEachOtherBecomeOneRun) {
  EXPECT_THAT(merged({{0, 2, 8, 8}, {16, 1, 4, 0}, {32, 1, 4, 0}}), ElementsAre(Piece{0, 1, 20, 0}, Piece{32, 1, 4, 0}));
  EXPECT_THAT(cut({{10, 4, 5, 8}}, 3, 17), ElementsAre(Piece{13, 1, 2, 0}, Piece{18, 2, 5, 8}, Piece{34, 1, 2, 0}));
}

// What lies at each place of an array: tensor, row and column in the unsplit model. Padding has no element.
using Element = std::tuple<int, int, int>;
using Elements = std::vector<Element>;
const Element padding{-1, 0, 0};

Elements elements(const std::vector<ParameterEntry>& entries, int layer) {
  Elements result;
  bool good = true;
  for (const ParameterEntry& entry : entries) {
    if (layer >= 0 && entry.layer != layer) continue;
    result.resize(std::max(result.size(), entry.offset + padded(entry.size)), padding);
    const MatrixShape shape = matrix_shape(entry.shape);
    std::size_t floats = 0;
    for (const Slab& slab : entry.slabs) {
      floats += static_cast<std::size_t>(slab.rows) * slab.columns;
      for (int row = 0; row < slab.rows; ++row) {
        for (int column = 0; column < slab.columns; ++column) {
          Element& at = result.at(entry.offset + (slab.row + row) * shape.columns + slab.column + column);
          good = good && at == padding && slab.row + row < shape.rows && slab.column + column < shape.columns;
          at = {entry.global_index, slab.full_row + row, slab.full_column + column};
        }
      }
    }
    EXPECT_EQ(floats, entry.size) << entry.name;
  }
  EXPECT_TRUE(good) << "slabs overlap or leave their tensor";
  return result;
}

Elements in_order(const Pieces& pieces, const Elements& at) {
  Elements result;
  for (const std::int64_t place : positions(pieces)) result.push_back(at.at(static_cast<std::size_t>(place)));
  return result;
}

class Layouts : public ::testing::TestWithParam<ReplicaCase> {};

TEST_P(Layouts, AgreeOnBucketsAndTheirOrder) {
  for (const ModelConfig& model : {gpt, llama}) {
    std::vector<ReplicaLayout> replicas;
    for (const ReplicaOptions& options : replicas_of(GetParam(), all)) replicas.emplace_back(model, all, options);
    const bool sharded = GetParam().options.sharded(), backward = GetParam().options.backward_masking;
    std::map<std::pair<const void*, int>, Elements> seen;
    const auto of = [&](const std::vector<ParameterEntry>& entries, int layer) -> const Elements& {
      auto found = seen.find({&entries, layer});
      if (found == seen.end()) found = seen.emplace(std::pair(&entries, layer), elements(entries, layer)).first;
      return found->second;
    };
    const auto check = [&](auto get, bool by_layer) {
      const Bucket& first = get(replicas[0]);
      Elements expected;
      for (std::size_t r = 0; r < replicas.size(); ++r) {
        const ReplicaLayout& layout = replicas[r];
        const Bucket& bucket = get(layout);
        const int layer = sharded ? bucket.first_layer : -1;
        EXPECT_EQ(bucket.holders, first.holders);
        EXPECT_EQ(bucket.floats, first.floats);
        EXPECT_EQ(bucket.first_layer, first.first_layer);
        EXPECT_EQ(bucket.last_layer, first.last_layer);
        const bool held = bucket.number_of(static_cast<int>(r)) >= 0;
        EXPECT_EQ(!bucket.parameters.empty(), held || backward);
        EXPECT_EQ(!bucket.gradients.empty(), held);
        EXPECT_EQ(!bucket.full.empty(), by_layer || bucket.first_layer == bucket.last_layer);
        const auto same = [&](const Pieces& pieces, const std::vector<ParameterEntry>& entries, int of_layer) {
          if (pieces.empty()) return;
          EXPECT_EQ(floats_of(pieces), bucket.floats);
          EXPECT_EQ(merged(pieces), pieces);
          const Elements order = in_order(pieces, of(entries, of_layer));
          if (expected.empty()) expected = order;
          EXPECT_EQ(order, expected);
        };
        same(bucket.parameters, layout.forward, layer);
        same(bucket.gradients, layout.trained, layer);
        same(bucket.full, layout.full, bucket.first_layer);
        // The slabs say the same.
        Elements by_slabs(static_cast<std::size_t>(bucket.floats), padding);
        for (const BucketSlab& part : bucket.slabs) {
          for (std::int64_t i = 0; i < std::int64_t{part.slab.rows} * part.slab.columns; ++i) {
            by_slabs.at(part.begin + i) = {layout.full[part.entry].global_index,
                                           part.slab.full_row + static_cast<int>(i / part.slab.columns),
                                           part.slab.full_column + static_cast<int>(i % part.slab.columns)};
          }
        }
        if (!expected.empty()) {
          EXPECT_EQ(by_slabs, expected);
        }
      }
    };
    ASSERT_FALSE(replicas[0].buckets.empty());
    for (std::size_t b = 0; b < replicas[0].buckets.size(); ++b) {
      check([b](const ReplicaLayout& layout) -> const Bucket& { return layout.buckets.at(b); }, false);
    }
    for (std::size_t l = 0; l < replicas[0].layers.size(); ++l) {
      for (std::size_t b = 0; b < replicas[0].layers[l].size(); ++b) {
        check([l, b](const ReplicaLayout& layout) -> const Bucket& { return layout.layers.at(l).at(b); }, true);
      }
    }
  }
}

TEST_P(Layouts, HaveEveryElementInOneBucket) {
  for (const ReplicaOptions& options : replicas_of(GetParam(), all)) {
    const ReplicaLayout layout(gpt, all, options);
    std::size_t floats = 0;
    for (const ParameterEntry& entry : layout.full) floats += entry.size;
    const auto check_once = [&](const std::vector<Bucket>& buckets) {
      Elements all_of_them;
      for (const Bucket& bucket : buckets) {
        for (const BucketSlab& part : bucket.slabs) {
          for (int row = 0; row < part.slab.rows; ++row) {
            for (int column = 0; column < part.slab.columns; ++column) {
              all_of_them.emplace_back(part.entry, part.slab.full_row + row, part.slab.full_column + column);
            }
          }
        }
      }
      EXPECT_EQ(all_of_them.size(), floats);
      std::sort(all_of_them.begin(), all_of_them.end());
      EXPECT_EQ(std::adjacent_find(all_of_them.begin(), all_of_them.end()), all_of_them.end());
    };
    check_once(layout.buckets);
    std::vector<Bucket> by_layer;
    for (const auto& buckets : layout.layers) by_layer.insert(by_layer.end(), buckets.begin(), buckets.end());
    check_once(by_layer);
    for (std::size_t b = 1; b < layout.buckets.size(); ++b) {
      EXPECT_GE(layout.buckets[b - 1].first_layer, layout.buckets[b].first_layer);
    }
    for (const Bucket& bucket : layout.buckets) {
      if (!options.sharded()) {
        EXPECT_TRUE(bucket.floats <= options.bucket_floats || bucket.slabs.size() == 1);
      }
    }
  }
}

TEST_P(Layouts, CutShardsThatTileTheBuckets) {
  for (const ReplicaOptions& options : replicas_of(GetParam(), all)) {
    const ReplicaLayout layout(llama, all, options);
    std::int64_t end = 0;
    for (const Bucket& bucket : layout.buckets) {
      const int n = static_cast<int>(bucket.holders.size());
      EXPECT_EQ(bucket.shard_begin(0), 0);
      EXPECT_EQ(bucket.shard_end(n - 1), bucket.floats);
      for (int h = 0; h < n; ++h) {
        EXPECT_EQ(bucket.shard_begin(h) % 16, 0);
        EXPECT_LE(bucket.shard_end(h) - bucket.shard_begin(h), bucket.floats / n + 32);
        EXPECT_LE(bucket.shard_begin(h), bucket.shard_end(h));
      }
      const int number = bucket.number_of(options.replica);
      EXPECT_GE(bucket.number_of(bucket.sender), 0);
      const LinearRange own = bucket.shard(options.replica);
      EXPECT_EQ(own.begin, number < 0 ? 0 : bucket.shard_begin(number));
      EXPECT_EQ(own.end, number < 0 ? 0 : bucket.shard_end(number));
      const bool has_shard = number >= 0 && (options.sharded() || options.mode == ReplicaMode::zero1);
      ASSERT_EQ(bucket.shard_offset >= 0, has_shard);
      if (!has_shard) continue;
      EXPECT_EQ(bucket.shard_offset, end);
      end += static_cast<std::int64_t>(padded(static_cast<std::size_t>(bucket.shard_end(number) - bucket.shard_begin(number))));
    }
    const auto is_that = [&](bool in_shards, std::int64_t array) { EXPECT_TRUE(!in_shards || array == end) << array; };
    is_that(options.sharded(), layout.parameter_floats);
    is_that(layout.sharded_gradients(), layout.gradient_floats);
    is_that(options.sharded() || options.mode == ReplicaMode::zero1, layout.moment_floats);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Layouts, ::testing::ValuesIn(all_replica_cases()), [](const auto& test) {
  std::string name = test.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

ReplicaOptions sdp(SdpUnit unit, double coverage, bool backward = false) {
  ReplicaOptions options{.mode = ReplicaMode::sdp, .replicas = 3, .replica = 1, .unit = unit, .backward_masking = backward};
  options.neuron_groups = 4;
  give_masks(options, all, coverage);
  return options;
}

bool same_tensors(const std::vector<ParameterEntry>& a, const std::vector<ParameterEntry>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ParameterEntry& x, const ParameterEntry& y) {
    return x.name == y.name && x.shape == y.shape && x.full_shape == y.full_shape && x.offset == y.offset && x.size == y.size &&
           x.global_index == y.global_index && x.slabs == y.slabs && x.layer == y.layer;
  });
}

TEST(ReplicaLayout, OfOneReplicaOrFullCoverageIsThePlainList) {
  for (const ModelConfig& model : {gpt, llama}) {
    const std::vector<ParameterEntry> plain = parameter_list(model);
    const ReplicaLayout one(model, all, {});
    EXPECT_TRUE(same_tensors(one.forward, plain));
    EXPECT_TRUE(same_tensors(one.trained, plain));
    EXPECT_EQ(one.parameter_floats, static_cast<std::int64_t>(buffer_floats(plain)));
    EXPECT_EQ(one.gradient_floats, one.parameter_floats);
    EXPECT_EQ(one.moment_floats, one.parameter_floats);
    const ReplicaLayout ddp(model, all, {.replicas = 3, .replica = 1});
    for (const SdpUnit unit : {SdpUnit::block, SdpUnit::sublayer, SdpUnit::neuron}) {
      for (const bool backward : {false, true}) {
        const ReplicaLayout layout(model, all, sdp(unit, 1, backward));
        EXPECT_TRUE(same_tensors(layout.forward, plain));
        EXPECT_TRUE(same_tensors(layout.trained, plain));
        ASSERT_EQ(layout.buckets.size(), ddp.buckets.size());
        for (std::size_t b = 0; b < ddp.buckets.size(); ++b) {
          EXPECT_EQ(layout.buckets[b].holders, ddp.buckets[b].holders);
          EXPECT_EQ(layout.buckets[b].parameters, ddp.buckets[b].parameters);
          EXPECT_EQ(layout.buckets[b].gradients, ddp.buckets[b].gradients);
        }
      }
    }
  }
}

std::vector<std::string> names(const std::vector<ParameterEntry>& entries, int layer) {
  std::vector<std::string> result;
  for (const ParameterEntry& entry : entries) {
    if (entry.layer == layer) result.push_back(entry.name.substr(entry.name.find("h.") + 4));
  }
  return result;
}

TEST(ReplicaLayout, LeavesOutWholeBlocksAndSublayers) {
  ReplicaOptions options = sdp(SdpUnit::block, 1);
  options.masks.holders = {{0, 1}, {0, 2}, {0, 1, 2}};
  const ReplicaLayout blocks(gpt, all, options);
  EXPECT_EQ(names(blocks.forward, 1).size(), 12u);
  EXPECT_EQ(names(blocks.forward, 2).size(), 0u);
  EXPECT_EQ(names(blocks.forward, 3).size(), 12u);
  EXPECT_EQ(names(blocks.full, 2).size(), 12u);
  EXPECT_EQ(names(blocks.forward, 0).size(), 2u);
  EXPECT_EQ(names(blocks.forward, 4).size(), 3u);
  EXPECT_EQ(blocks.forward[2].slabs[0].unit, 0);
  EXPECT_EQ(blocks.forward[14].slabs[0].unit, -1);
  EXPECT_EQ(blocks.forward[14].global_index, 26);

  options = sdp(SdpUnit::sublayer, 1);
  options.masks.holders = {{0, 1}, {2}, {0}, {1, 2}, {0, 1, 2}, {0, 1, 2}};
  const ReplicaLayout sublayers(gpt, all, options);
  EXPECT_THAT(names(sublayers.forward, 1), ElementsAre("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias",
                                                       "attn.c_proj.weight", "attn.c_proj.bias"));
  EXPECT_THAT(names(sublayers.forward, 2), ElementsAre("ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias",
                                                       "mlp.c_proj.weight", "mlp.c_proj.bias"));
  EXPECT_EQ(sublayers.layers[1].size(), 2u);
  EXPECT_THAT(sublayers.layers[1][1].holders, ElementsAre(2));
}

TEST(ReplicaLayout, NarrowsNeurons) {
  ReplicaOptions options = sdp(SdpUnit::neuron, 1);
  options.masks.holders.assign(12, {0, 1, 2});
  options.masks.holders[4] = {0};  // block 1: groups 0 .. 3 of 20 neurons
  options.masks.holders[5] = {1};  // held here: 1 and 3
  options.masks.holders[6] = {0, 2};
  const ReplicaLayout layout(gpt, all, options);
  const auto find = [](const std::vector<ParameterEntry>& entries, const std::string& name) {
    for (const auto& entry : entries) {
      if (entry.name == "transformer.h.1." + name) return entry;
    }
    throw std::runtime_error(name);
  };
  const ParameterEntry up = find(layout.forward, "mlp.c_fc.weight"), bias = find(layout.forward, "mlp.c_fc.bias"),
                       down = find(layout.forward, "mlp.c_proj.weight"), after = find(layout.forward, "mlp.c_proj.bias");
  EXPECT_THAT(up.shape, ElementsAre(40, 20));
  EXPECT_THAT(up.full_shape, ElementsAre(80, 20));
  EXPECT_THAT(up.slabs, ElementsAre(Slab{5, 0, 0, 20, 20, 20, 0}, Slab{-1, 20, 0, 20, 20, 60, 0}));
  EXPECT_THAT(bias.shape, ElementsAre(40));
  EXPECT_THAT(bias.slabs, ElementsAre(Slab{5, 0, 0, 1, 20, 0, 20}, Slab{-1, 0, 20, 1, 20, 0, 60}));
  EXPECT_THAT(down.shape, ElementsAre(20, 40));
  EXPECT_THAT(down.slabs, ElementsAre(Slab{5, 0, 0, 20, 20, 0, 20}, Slab{-1, 0, 20, 20, 20, 0, 60}));
  EXPECT_EQ(down.size, 800u);
  EXPECT_EQ(after.slabs, find(layout.full, "mlp.c_proj.bias").slabs);
  EXPECT_EQ(find(layout.full, "mlp.c_fc.weight").slabs.size(), 4u);
  // The other blocks' neurons are held by all: their tensors are not cut.
  EXPECT_EQ(layout.layers[1].size(), 1u);
  EXPECT_THAT(layout.layers[1][0].parameters,
              ElementsAre(Piece{layout.layers[1][0].parameters[0].offset, 1, layout.full_layer_floats[1], 0}));
}

bool same_buckets(const std::vector<Bucket>& a, const std::vector<Bucket>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Bucket& x, const Bucket& y) {
    const bool slabs =
        std::equal(x.slabs.begin(), x.slabs.end(), y.slabs.begin(), y.slabs.end(), [](const auto& s, const auto& t) {
          return s.entry == t.entry && s.slab == t.slab && s.begin == t.begin && s.end == t.end;
        });
    return slabs && x.holders == y.holders && x.floats == y.floats && x.first_layer == y.first_layer &&
           x.last_layer == y.last_layer && x.sender == y.sender && x.parameters == y.parameters && x.gradients == y.gradients &&
           x.full == y.full && x.shard_offset == y.shard_offset;
  });
}

TEST_P(Layouts, MovedToAReplicaAreAsMadeForIt) {
  const std::vector<ReplicaOptions> replicas = replicas_of(GetParam(), all);
  ReplicaLayout moved(llama, all, replicas[1]);
  for (const int replica : {2, 0, 0, 1}) {
    moved.move_to(replica);
    const ReplicaLayout made(llama, all, replicas[replica]);
    EXPECT_EQ(moved.options.replica, replica);
    EXPECT_TRUE(same_tensors(moved.forward, made.forward));
    EXPECT_TRUE(same_tensors(moved.trained, made.trained));
    EXPECT_TRUE(same_tensors(moved.full, made.full));
    EXPECT_TRUE(same_buckets(moved.buckets, made.buckets));
    for (std::size_t l = 0; l < made.layers.size(); ++l) EXPECT_TRUE(same_buckets(moved.layers[l], made.layers[l]));
    EXPECT_EQ(moved.parameter_floats, made.parameter_floats);
    EXPECT_EQ(moved.gradient_floats, made.gradient_floats);
    EXPECT_EQ(moved.moment_floats, made.moment_floats);
    EXPECT_EQ(moved.forward_layer_floats, made.forward_layer_floats);
    EXPECT_EQ(moved.trained_layer_floats, made.trained_layer_floats);
    EXPECT_EQ(moved.gradient_layer_offsets, made.gradient_layer_offsets);
  }
}

TEST(ReplicaLayout, TensorsArePlacedAnewOnlyWhereOtherUnitsAreHeld) {
  ReplicaOptions options{.mode = ReplicaMode::sdp, .replicas = 12, .unit = SdpUnit::block};
  give_masks(options, all, 0.67);  // three different sets of blocks, four neighbours each
  const auto before = ReplicaLayout::work();
  ReplicaLayout layout(gpt, all, options);
  int told = 0;
  for (int r = 0; r < 12; ++r) told += layout.move_to(r) ? 1 : 0;
  EXPECT_EQ(told, 2);
  EXPECT_EQ(ReplicaLayout::work().placed - before.placed, 3);
  EXPECT_EQ(ReplicaLayout::work().made - before.made, 1);
}

TEST(ReplicaLayout, RefusesMasksOfAnotherStage) {
  ReplicaOptions options = sdp(SdpUnit::block, 0.67);
  EXPECT_THROW(ReplicaLayout(gpt, {true, 0, 2, false}, options), RunError);
  options.masks.workers = 2;
  EXPECT_THROW(ReplicaLayout(gpt, all, options), RunError);
}

}  // namespace
}  // namespace minipipe::core
