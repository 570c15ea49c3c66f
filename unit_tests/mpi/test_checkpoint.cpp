// Checkpoints written by several ranks, by parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/io/checkpoint.hpp"
#include "core/io/durable.hpp"
#include "core/io/hdf5.hpp"
#include "schedules/error.hpp"
#include "unit_tests/support/part_list.hpp"

namespace minipipe::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::part_of;
using testing::PartList;

using Shape = std::vector<hsize_t>;
using Tiles = std::vector<Rectangle>;
// What rank `rank` of `size` has of a matrix.
using Tiling = std::function<Tiles(hsize_t rows, hsize_t columns, hsize_t rank, hsize_t size)>;

Tiles by_rows(hsize_t rows, hsize_t columns, hsize_t rank, hsize_t size) {
  const hsize_t begin = rows * rank / size;
  return {{begin, 0, rows * (rank + 1) / size - begin, columns}};
}

// In turn, so that a rank has several parts of a tensor.
Tiles by_columns(hsize_t rows, hsize_t columns, hsize_t rank, hsize_t size) {
  Tiles tiles;
  for (hsize_t column = rank; column < columns; column += size) tiles.push_back({0, column, rows, 1});
  return tiles;
}

// Equal runs of the elements' linear order: a row's end, whole rows, a row's beginning.
Tiles flat(hsize_t rows, hsize_t columns, hsize_t rank, hsize_t size) {
  Tiles tiles;
  const hsize_t end = rows * columns * (rank + 1) / size;
  for (hsize_t next = rows * columns * rank / size; next < end;) {
    const hsize_t row = next / columns;
    const hsize_t column = next % columns;
    const hsize_t whole = column == 0 ? (end - next) / columns : 0;
    const Rectangle tile =
        whole > 0 ? Rectangle{row, 0, whole, columns} : Rectangle{row, column, 1, std::min(columns - column, end - next)};
    tiles.push_back(tile);
    next += tile.floats();
  }
  return tiles;
}

Tiles last_has_all(hsize_t rows, hsize_t columns, hsize_t rank, hsize_t size) {
  return rank + 1 == size ? Tiles{{0, 0, rows, columns}} : Tiles{};
}

const std::vector<Tiling> tilings{by_rows, by_columns, flat, last_has_all};

struct Tensor {
  std::string name;
  Shape shape;
  std::vector<TensorField> fields;

  std::vector<float> values(TensorField field) const {
    std::vector<float> result(hdf5::File::element_count(shape));
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = static_cast<float>(i) + 1000.0f * static_cast<float>(field) + 0.125f * static_cast<float>(name.size());
    }
    return result;
  }
};

const std::vector<Tensor> model{
    {"wte", {13, 10}, {TensorField::value, TensorField::m, TensorField::v}},
    {"c_fc.bias", {7}, {TensorField::value, TensorField::m}},
    {"narrow", {50, 1}, {TensorField::value, TensorField::shadow, TensorField::velocity}},
    {"one", {1}, {TensorField::value}},
};

std::vector<TensorPart> parts_of(const Tiling& tiling, int rank, int size) {
  std::vector<TensorPart> parts;
  for (const Tensor& tensor : model) {
    const hsize_t rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
    for (const TensorField field : tensor.fields) {
      for (const Rectangle& tile : tiling(rows, tensor.shape.back(), static_cast<hsize_t>(rank), static_cast<hsize_t>(size))) {
        parts.push_back({tensor.name, field, tensor.shape, tile});
      }
    }
  }
  return parts;
}

std::vector<float> values_of(const TensorPart& part) {
  const auto found = std::find_if(model.begin(), model.end(), [&](const Tensor& tensor) { return tensor.name == part.name; });
  return part_of(found->values(part.field), part);
}

void copy_values(const TensorPart& part, float* to) {
  const std::vector<float> values = values_of(part);
  std::copy(values.begin(), values.end(), to);
}

// One folder for all ranks, made and removed by rank 0.
class ParallelCheckpoint : public ::testing::Test {
 protected:
  ParallelCheckpoint() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    int id = rank_ == 0 ? static_cast<int>(::getpid()) : 0;
    MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
    folder_ = std::filesystem::temp_directory_path() / ("minipipe_mpi_checkpoint_" + std::to_string(id));
    if (rank_ == 0) std::filesystem::create_directories(folder_);
    MPI_Barrier(MPI_COMM_WORLD);
    path_ = checkpoint_path(folder_, 7);
    parts_ = parts_of(flat, rank_, size_);
    state_.step = 7 + rank_;  // rank 0's counts
    state_.deck = rank_ == 0 ? "deck of rank 0" : "";
  }
  ~ParallelCheckpoint() override {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ == 0) std::filesystem::remove_all(folder_);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  bool last() const { return rank_ == size_ - 1; }
  void write(const std::vector<TensorPart>& parts, MPI_Comm comm = MPI_COMM_WORLD) const {
    write_checkpoint(
        comm, path_, parts, [&](std::size_t number, float* to) { copy_values(parts[number], to); }, state_);
  }
  // Every rank gets a RunError of the same text, which is returned, and there is no file.
  std::string failure(const std::function<void()>& work) const {
    std::string text;
    try {
      work();
      ADD_FAILURE() << "no error";
    } catch (const RunError& error) {
      text = error.what();
    }
    char of_rank_0[512] = {};
    text.copy(of_rank_0, sizeof of_rank_0 - 1);
    MPI_Bcast(of_rank_0, sizeof of_rank_0, MPI_CHAR, 0, MPI_COMM_WORLD);
    EXPECT_EQ(text, of_rank_0);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_FALSE(std::filesystem::exists(temporary_name(path_)));
    return text;
  }
  // Reads the file as each of `readers` ranks with each tiling does.
  void expect_read_by(int readers) const {
    for (std::size_t t = 0; t < tilings.size(); ++t) {
      for (int reader = 0; reader < readers; ++reader) {
        const std::vector<TensorPart> wanted = parts_of(tilings[t], reader, readers);
        std::size_t taken = 0;
        read_parts(path_, wanted, [&](std::size_t number, const float* values) {
          ++taken;
          const std::vector<float> got(values, values + wanted[number].rectangle.floats());
          EXPECT_EQ(got, values_of(wanted[number])) << wanted[number].name << ", tiling " << t << ", reader " << reader;
        });
        EXPECT_EQ(taken, wanted.size());
      }
    }
  }

  int rank_ = 0;
  int size_ = 1;
  std::filesystem::path folder_, path_;
  std::vector<TensorPart> parts_;
  CheckpointState state_;
};

TEST_F(ParallelCheckpoint, AnyTilingIsReadWithAnyOther) {
  for (const Tiling& tiling : tilings) {
    write(parts_of(tiling, rank_, size_));
    EXPECT_EQ(read_checkpoint_state(path_).step, 7);
    EXPECT_EQ(read_checkpoint_state(path_).deck, "deck of rank 0");
    for (const int readers : {1, 2, 4}) expect_read_by(readers);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_F(ParallelCheckpoint, OneRankWritesTheSameChecksums) {
  const auto checksums = [this] {
    std::vector<std::uint64_t> result;
    const hdf5::File file = hdf5::File::open(path_, false);
    for (const std::string& name : file.names("/model"))
      result.push_back(file.get<std::uint64_t>("/model/" + name, "checksum"));
    return result;
  };
  write(parts_of(by_columns, rank_, size_));
  const std::vector<std::uint64_t> together = checksums();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ == 0) write(parts_of(by_rows, 0, 1), MPI_COMM_SELF);
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_EQ(together.size(), model.size());
  EXPECT_EQ(checksums(), together);
}

TEST_F(ParallelCheckpoint, AMissingPartIsAnErrorOnAllRanks) {
  if (last()) {
    std::erase_if(parts_, [](const TensorPart& part) { return part.name == "wte" && part.field == TensorField::v; });
    parts_.push_back({"wte", TensorField::v, {13, 10}, {}});
  }
  const std::string missing = std::to_string(130 - 130 * (size_ - 1) / size_) + " of 130 elements are given by no rank";
  EXPECT_THAT(failure([this] { write(parts_); }), AllOf(HasSubstr("/optimizer/wte/v"), HasSubstr(missing)));
}

TEST_F(ParallelCheckpoint, ADatasetThatAllNameAndNobodyGivesIsAnErrorOnAllRanks) {
  parts_.push_back({"forgotten", TensorField::value, {6, 4}, {}});
  EXPECT_THAT(failure([this] { write(parts_); }),
              AllOf(HasSubstr("/model/forgotten"), HasSubstr("24 of 24 elements are given by no rank")));
}

TEST_F(ParallelCheckpoint, AnOverlapIsAnErrorOnAllRanks) {
  if (size_ == 1) GTEST_SKIP() << "needs two ranks";
  if (last()) parts_.push_back({"narrow", TensorField::value, {50, 1}, {0, 0, 1, 1}});
  EXPECT_THAT(failure([this] { write(parts_); }),
              AllOf(HasSubstr("/model/narrow"), HasSubstr("by rank 0"), HasSubstr("by rank " + std::to_string(size_ - 1))));
}

// As many elements as the tensor has, but one twice and one not at all.
TEST_F(ParallelCheckpoint, AnOverlapThatMakesUpForAHoleIsSeen) {
  if (size_ == 1) GTEST_SKIP() << "needs two ranks";
  for (TensorPart& part : parts_) {
    if (last() && part.name == "narrow" && part.field == TensorField::value) --part.rectangle.row;
  }
  EXPECT_THAT(failure([this] { write(parts_); }), AllOf(HasSubstr("/model/narrow"), HasSubstr("and by rank")));
}

TEST_F(ParallelCheckpoint, AnotherShapeOnOneRankIsAnErrorOnAllRanks) {
  if (size_ == 1) GTEST_SKIP() << "needs two ranks";
  for (TensorPart& part : parts_) {
    if (last() && part.name == "wte") part.shape[0] = 14;
  }
  EXPECT_THAT(failure([this] { write(parts_); }), AllOf(HasSubstr("/wte"), HasSubstr("[13, 10] on rank 0"),
                                                        HasSubstr("[14, 10] on rank " + std::to_string(size_ - 1))));
}

TEST_F(ParallelCheckpoint, APartThatIsNoneOnOneRankIsAnErrorOnAllRanks) {
  if (last()) parts_.push_back(whole_tensor("bad/name", TensorField::value, {1}));
  EXPECT_THAT(failure([this] { write(parts_); }), AllOf(HasSubstr("bad/name"), HasSubstr("rank " + std::to_string(size_ - 1))));
}

// In the middle of the writing.
TEST_F(ParallelCheckpoint, APartThatCannotBeCopiedIsAnErrorOnAllRanks) {
  const auto copy = [this](std::size_t number, float* to) {
    if (last() && parts_[number].name == "wte" && parts_[number].field == TensorField::m) throw RunError("device lost");
    copy_values(parts_[number], to);
  };
  EXPECT_THAT(failure([&] { write_checkpoint(MPI_COMM_WORLD, path_, parts_, copy, state_); }),
              AllOf(HasSubstr("device lost"), HasSubstr("rank " + std::to_string(size_ - 1))));
}

TEST_F(ParallelCheckpoint, OneChangedElementIsDamageToEveryReaderOfItsDataset) {
  write(parts_);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ == 0) {
    hdf5::File file = hdf5::File::open(path_, true);
    std::vector<float> values = file.read<float>("/model/wte");
    values[77] = -values[77];
    const hdf5::Handle dataset = file.open_dataset("/model/wte");
    ASSERT_GE(H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const auto read = [this](TensorField field) {
    read_parts(path_, {{"wte", field, {13, 10}, {static_cast<hsize_t>(rank_), 0, 1, 10}}}, [](std::size_t, const float*) {});
  };
  EXPECT_NO_THROW(read(TensorField::m));
  EXPECT_THROW(read(TensorField::value), InputError);
}

}  // namespace
}  // namespace minipipe::core
