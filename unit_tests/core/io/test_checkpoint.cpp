#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <set>
#include <utility>

#include "core/io/checkpoint.hpp"
#include "core/io/checkpoint_format.hpp"
#include "core/io/durable.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/io/scratch.hpp"
#include "unit_tests/support/part_list.hpp"

namespace minipipe::core {
namespace {

using ::testing::AllOf;
using testing::error_text;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::part_of;
using testing::PartList;
using testing::read_all;
using testing::write_all;

constexpr const char* attention = "transformer.h.0.attn.c_attn.weight";
constexpr const char* bias = "transformer.ln_f.bias";

class Checkpoint : public testing::Scratch {
 protected:
  Checkpoint() {
    std::iota(weight_.begin(), weight_.end(), 1.0f);
    for (std::size_t i = 0; i < weight_.size(); ++i) {
      m_[i] = 0.5f * weight_[i];
      v_[i] = weight_[i] * weight_[i];
    }
    state_.step = 20;
    state_.microbatches = 160;
    state_.tokens = 20480;
    state_.seed = 0xfedcba9876543210ULL;
    state_.stages = 4;
    state_.schedule = "paci";
    state_.deck = "[run]\nname = \"verify\"\n";
    state_.git_hash = "";
    state_.elapsed_s = 12.0625;
  }

  // Tensors in halves, which gives two parts to each dataset.
  PartList tensors() const {
    PartList list;
    for (const auto& [field, values] :
         {std::pair(TensorField::value, &weight_), std::pair(TensorField::m, &m_), std::pair(TensorField::v, &v_)}) {
      list.add({attention, field, {30, 10}, {0, 0, 30, 4}}, *values);
      list.add({attention, field, {30, 10}, {0, 4, 30, 6}}, *values);
    }
    list.add(whole_tensor(bias, TensorField::value, {3}), bias_);
    return list;
  }
  void write(const PartList& list, const std::filesystem::path& path) const {
    write_checkpoint(MPI_COMM_WORLD, path, list.parts(), list.copy(), state_);
  }
  void write(const std::filesystem::path& path) const { write(tensors(), path); }
  static std::vector<float> read(const std::filesystem::path& path, const TensorPart& part) {
    std::vector<float> result;
    read_parts(path, {part},
               [&](std::size_t, const float* values) { result.assign(values, values + part.rectangle.floats()); });
    return result;
  }
  std::vector<float> read(const std::string& name, TensorField field, const std::vector<hsize_t>& shape) const {
    return read(file_, whole_tensor(name, field, shape));
  }
  void write_step(std::int64_t step) {
    state_.step = step;
    write(checkpoint_path(folder_, step));
  }

  std::vector<float> weight_ = std::vector<float>(300);
  std::vector<float> m_ = std::vector<float>(300);
  std::vector<float> v_ = std::vector<float>(300);
  std::vector<float> bias_ = {-1.0f, 0.0f, 1e-38f};
  CheckpointState state_;
  std::filesystem::path file_ = checkpoint_path(folder_, 20);
};

TEST_F(Checkpoint, NameHasEightDigits) {
  EXPECT_EQ(checkpoint_path("out", 40), std::filesystem::path("out/step_00000040.h5"));
  EXPECT_EQ(checkpoint_path("out", 123456789), std::filesystem::path("out/step_123456789.h5"));
}

TEST_F(Checkpoint, EverythingComesBack) {
  write(file_);
  EXPECT_FALSE(std::filesystem::exists(temporary_name(file_)));
  const CheckpointState got = read_checkpoint_state(file_);
  EXPECT_EQ(got.step, state_.step);
  EXPECT_EQ(got.microbatches, state_.microbatches);
  EXPECT_EQ(got.tokens, state_.tokens);
  EXPECT_EQ(got.seed, state_.seed);
  EXPECT_EQ(got.stages, state_.stages);
  EXPECT_EQ(got.schedule, state_.schedule);
  EXPECT_EQ(got.deck, state_.deck);
  EXPECT_EQ(got.git_hash, state_.git_hash);
  EXPECT_EQ(got.elapsed_s, state_.elapsed_s);
  EXPECT_EQ(read(attention, TensorField::value, {30, 10}), weight_);
  EXPECT_EQ(read(attention, TensorField::m, {30, 10}), m_);
  EXPECT_EQ(read(attention, TensorField::v, {30, 10}), v_);
  EXPECT_EQ(read(bias, TensorField::value, {3}), bias_);
}

TEST_F(Checkpoint, PartsComeBackInTheirOwnOrderOfElements) {
  write(file_);
  const std::vector<TensorPart> wanted{{bias, TensorField::value, {3}, {0, 1, 1, 2}},
                                       {attention, TensorField::m, {30, 10}, {28, 7, 2, 3}},
                                       {attention, TensorField::m, {30, 10}, {0, 0, 1, 2}},
                                       {attention, TensorField::m, {30, 10}, {27, 6, 2, 2}}};
  std::vector<std::vector<float>> got(wanted.size());
  read_parts(file_, wanted, [&](std::size_t part, const float* values) {
    ASSERT_TRUE(got[part].empty());
    got[part].assign(values, values + wanted[part].rectangle.floats());
  });
  EXPECT_EQ(got[0], (std::vector<float>{0.0f, 1e-38f}));
  EXPECT_EQ(got[1], (std::vector<float>{m_[287], m_[288], m_[289], m_[297], m_[298], m_[299]}));
  EXPECT_EQ(got[2], (std::vector<float>{m_[0], m_[1]}));
  EXPECT_EQ(got[3], (std::vector<float>{m_[276], m_[277], m_[286], m_[287]}));
}

// Larger than a slab: parts that end inside slabs, and in other slabs than they begin.
TEST_F(Checkpoint, ALargeTensorIsReadInSlabs) {
  const std::vector<hsize_t> shape{2500, 1000};
  std::vector<float> large(2500 * 1000);
  std::iota(large.begin(), large.end(), 0.0f);
  PartList list;
  list.add(whole_tensor("large", TensorField::value, shape), large);
  write(list, file_);
  EXPECT_EQ(read("large", TensorField::value, shape), large);
  const TensorPart part{"large", TensorField::value, shape, {1000, 990, 1300, 5}};
  EXPECT_EQ(read(file_, part), part_of(large, part));
}

TEST_F(Checkpoint, APartOutsideItsTensorIsTold) {
  write(file_);
  for (const Rectangle& wrong : {Rectangle{0, 0, 31, 10}, Rectangle{0, 5, 30, 6}, Rectangle{31, 0, 0, 10}}) {
    EXPECT_THAT(error_text<RunError>([&] {
                  read(file_, {attention, TensorField::m, {30, 10}, wrong});
                }),
                AllOf(HasSubstr(attention), HasSubstr("has no part")));
    PartList list = tensors();
    list.add({attention, TensorField::m, {30, 10}, wrong}, std::vector<float>(310));
    EXPECT_THAT(error_text<RunError>([&] { write(list, file_); }), AllOf(HasSubstr(attention), HasSubstr("has no part")));
  }
  EXPECT_EQ(read(attention, TensorField::m, {30, 10}), m_);
}

TEST_F(Checkpoint, AnErrorOfTheReceiverIsNotDamage) {
  write(file_);
  const auto take = [](std::size_t, const float*) { throw RunError("mine"); };
  const std::vector<TensorPart> wanted{whole_tensor(bias, TensorField::value, {3})};
  EXPECT_EQ(error_text<RunError>([&] { read_parts(file_, wanted, take); }), "mine");
}

// What the writer asks for at a time: the memory that it needs on the host.
TEST_F(Checkpoint, PartsAreCopiedOneAtATimeAndOnce) {
  const PartList list = tensors();
  std::vector<int> copied(list.parts().size());
  const float* buffer = nullptr;
  write_checkpoint(
      MPI_COMM_WORLD, file_, list.parts(),
      [&](std::size_t part, float* values) {
        if (buffer == nullptr) buffer = values;
        EXPECT_EQ(values, buffer);
        ++copied[part];
        list.copy()(part, values);
      },
      state_);
  EXPECT_EQ(copied, std::vector<int>(copied.size(), 1));
}

TEST_F(Checkpoint, AnotherModelListsAllDifferences) {
  write(file_);
  const std::vector<TensorShape> same{{"transformer.ln_f.bias", {3}}, {attention, {30, 10}}};
  EXPECT_NO_THROW(check_same_model(file_, same));
  const std::vector<TensorShape> other{{attention, {60, 20}}, {"lm_head.weight", {7, 3}}, {"transformer.wte.weight", {7, 3}}};
  const std::string text = error_text<InputError>([&] { check_same_model(file_, other); });
  EXPECT_THAT(text, AllOf(HasSubstr(file_.string()), HasSubstr("[30, 10] in the file, [60, 20] in the model"),
                          HasSubstr("missing in the file: lm_head.weight [7, 3]"), HasSubstr("transformer.wte.weight"),
                          HasSubstr("only in the file: transformer.ln_f.bias [3]")));
  const std::string part = error_text<InputError>([&] {
    read_parts(
        file_,
        {whole_tensor(attention, TensorField::value, {60, 20}), whole_tensor("lm_head.weight", TensorField::value, {7, 3})},
        [](std::size_t, const float*) {});
  });
  EXPECT_THAT(part, AllOf(HasSubstr(attention), HasSubstr("lm_head.weight"), Not(HasSubstr("ln_f"))));
}

TEST_F(Checkpoint, MissingMomentsAreTold) {
  write(file_);
  EXPECT_THAT(error_text<InputError>([&] { read(bias, TensorField::m, {3}); }),
              HasSubstr("/optimizer/transformer.ln_f.bias/m"));
}

TEST_F(Checkpoint, MissingFilesAndOtherFilesAreTold) {
  EXPECT_THAT(error_text<InputError>([&] { read_checkpoint_state(file_); }), HasSubstr("no such checkpoint"));
  write_all(file_, "text");
  EXPECT_THAT(error_text<InputError>([&] { read_checkpoint_state(file_); }), HasSubstr("not an HDF5 file"));
  hdf5::File::create(file_).close();
  EXPECT_THAT(error_text<InputError>([&] { read_checkpoint_state(file_); }), HasSubstr("not a minipipe checkpoint"));
  for (const int version : {checkpoint_format_version - 1, checkpoint_format_version + 1}) {
    hdf5::File file = hdf5::File::create(file_);
    file.set("/", "format", std::string(checkpoint_format));
    file.set<std::int32_t>("/", "format_version", version);
    file.close();
    EXPECT_THAT(error_text<InputError>([&] { read_checkpoint_state(file_); }),
                AllOf(HasSubstr("format version " + std::to_string(version)), HasSubstr("reads version 2"),
                      HasSubstr("use the minipipe that wrote it")));
  }
}

TEST_F(Checkpoint, AFileCutShortIsDamaged) {
  write(file_);
  const std::string whole = read_all(file_);
  for (const std::size_t size : {whole.size() / 2, whole.size() - 1, std::size_t{100}}) {
    write_all(file_, whole.substr(0, size));
    EXPECT_THAT(error_text<InputError>([&] { read_checkpoint_state(file_); }), HasSubstr("damaged")) << size;
  }
}

TEST_F(Checkpoint, OneChangedByteOfATensorIsDamaged) {
  write(file_);
  std::string bytes = read_all(file_);
  const std::string pattern(reinterpret_cast<const char*>(m_.data()), 40);
  const std::size_t place = bytes.find(pattern);
  ASSERT_NE(place, std::string::npos);
  bytes[place + 7] = static_cast<char>(bytes[place + 7] ^ 0x40);
  write_all(file_, bytes);
  EXPECT_EQ(read(attention, TensorField::value, {30, 10}), weight_);
  // The byte does not lie in this part, but a part is as good as its dataset.
  bool taken = false;
  EXPECT_THAT(error_text<InputError>([&] {
                read_parts(file_, {{attention, TensorField::m, {30, 10}, {20, 0, 1, 10}}},
                           [&taken](std::size_t, const float*) { taken = true; });
              }),
              AllOf(HasSubstr("damaged"), HasSubstr("/m")));
  EXPECT_FALSE(taken);
}

TEST_F(Checkpoint, AChangedStateIsDamaged) {
  write(file_);
  {
    hdf5::File file = hdf5::File::open(file_, true);
    file.set<std::int64_t>("/state", "tokens", state_.tokens + 1);
    file.close();
  }
  EXPECT_THAT(error_text<InputError>([&] { read_checkpoint_state(file_); }), HasSubstr("checksum of /state"));
}

TEST_F(Checkpoint, AMissingDatasetIsDamaged) {
  write(file_);
  {
    hdf5::File file = hdf5::File::open(file_, true);
    ASSERT_GE(H5Ldelete(file.id(), "/model/transformer.ln_f.bias", H5P_DEFAULT), 0);
    file.close();
  }
  EXPECT_THAT(error_text<InputError>([&] { read_checkpoint_state(file_); }), HasSubstr("4 datasets were written, 3"));
}

TEST_F(Checkpoint, ChecksumSeesEveryBitAndTheLength) {
  std::string bytes(37, '\0');
  const std::uint64_t zero = checkpoint::checksum(bytes.data(), bytes.size());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(1 << (bit % 8));
    EXPECT_NE(checkpoint::checksum(bytes.data(), bytes.size()), zero) << bit;
    bytes[bit / 8] = 0;
  }
  EXPECT_NE(checkpoint::checksum(bytes.data(), 36), zero);
}

TEST_F(Checkpoint, ChecksumOfADatasetIsTheSumOfAnyParts) {
  const std::uint64_t whole = checkpoint::checksum_share(weight_.data(), {0, 0, 30, 10}, 10);
  std::uint64_t sum = 0;
  for (const Rectangle& part : {Rectangle{0, 0, 30, 3}, Rectangle{0, 3, 11, 7}, Rectangle{11, 3, 19, 7}}) {
    const std::vector<float> values = part_of(weight_, {attention, TensorField::value, {30, 10}, part});
    sum += checkpoint::checksum_share(values.data(), part, 10);
  }
  EXPECT_EQ(sum, whole);
}

TEST_F(Checkpoint, ChecksumOfADatasetSeesEveryBitThePlaceAndTheLength) {
  const Rectangle row{0, 0, 1, 9};
  std::vector<float> values(9);
  std::set<std::uint64_t> seen{checkpoint::checksum_share(values.data(), row, 9)};
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (int bit = 0; bit < 32; ++bit) {
      values[i] = std::bit_cast<float>(std::uint32_t{1} << bit);
      EXPECT_TRUE(seen.insert(checkpoint::checksum_share(values.data(), row, 9)).second) << i << " " << bit;
    }
    values[i] = 0.0f;
  }
  EXPECT_TRUE(seen.insert(checkpoint::checksum_share(values.data(), {0, 0, 1, 8}, 9)).second);
}

TEST_F(Checkpoint, LatestSkipsBrokenOnesAndTemporaryFiles) {
  EXPECT_FALSE(latest_checkpoint(folder_).has_value());
  EXPECT_FALSE(latest_checkpoint(folder_ / "none").has_value());
  write_step(9);
  write_step(100);
  write_all(temporary_name(checkpoint_path(folder_, 300)), "half");
  write_all(folder_ / "step_latest.h5", "no step");
  std::string warning;
  EXPECT_EQ(latest_checkpoint(folder_, &warning), checkpoint_path(folder_, 100));
  EXPECT_EQ(warning, "");
  const std::string whole = read_all(checkpoint_path(folder_, 100));
  write_all(checkpoint_path(folder_, 200), whole.substr(0, whole.size() / 2));
  EXPECT_EQ(latest_checkpoint(folder_, &warning), checkpoint_path(folder_, 100));
  EXPECT_THAT(warning, HasSubstr("step_00000200.h5"));
}

TEST_F(Checkpoint, KeepsTheLast) {
  for (const std::int64_t step : {1, 2, 3, 10}) write_step(step);
  write_all(temporary_name(checkpoint_path(folder_, 11)), "half");
  write_all(folder_ / "notes.h5", "mine");
  keep_last(folder_, 0);
  EXPECT_TRUE(std::filesystem::exists(checkpoint_path(folder_, 1)));
  EXPECT_FALSE(std::filesystem::exists(temporary_name(checkpoint_path(folder_, 11))));
  keep_last(folder_, 2);
  EXPECT_FALSE(std::filesystem::exists(checkpoint_path(folder_, 1)));
  EXPECT_FALSE(std::filesystem::exists(checkpoint_path(folder_, 2)));
  EXPECT_TRUE(std::filesystem::exists(checkpoint_path(folder_, 3)));
  EXPECT_TRUE(std::filesystem::exists(checkpoint_path(folder_, 10)));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "notes.h5"));
}

TEST_F(Checkpoint, WrongTensorListsAreToldBeforeAnythingIsWritten) {
  PartList twice = tensors();
  twice.add({attention, TensorField::m, {30, 10}, {29, 9, 1, 1}}, m_);
  EXPECT_THAT(error_text<RunError>([&] { write(twice, file_); }),
              AllOf(HasSubstr(attention), HasSubstr("/m: row 29, column 9 is given by rank 0 and by rank 0")));
  PartList name;
  name.add(whole_tensor("a/b", TensorField::value, {3}), bias_);
  EXPECT_THAT(error_text<RunError>([&] { write(name, file_); }), HasSubstr("a/b"));
  PartList deep;
  deep.add(whole_tensor("deep", TensorField::value, {3, 1, 1}), bias_);
  EXPECT_THAT(error_text<RunError>([&] { write(deep, file_); }), AllOf(HasSubstr("deep"), HasSubstr("[3, 1, 1]")));
  PartList no_value;
  no_value.add(whole_tensor("half", TensorField::m, {3}), bias_);
  EXPECT_THAT(error_text<RunError>([&] { write(no_value, file_); }), HasSubstr("/optimizer/half/m is given, but not"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Checkpoint, AVanishedFolderIsARunError) {
  const auto path = checkpoint_path(folder_ / "gone", 1);
  EXPECT_THAT(error_text<RunError>([&] { write(path); }), HasSubstr(path.string()));
}

TEST_F(Checkpoint, AFailedWriteKeepsThePreviousCheckpoint) {
  write(file_);
  const std::string before = read_all(file_);
  const std::vector<float> large(std::size_t{1} << 20, 1.5f);
  std::string text;
  {
    const testing::FileSizeLimit limit(std::size_t{1} << 20);
    PartList list;
    list.add(whole_tensor("large", TensorField::value, {large.size()}), large);
    text = error_text<RunError>([&] { write(list, file_); });
  }
  EXPECT_THAT(text, AllOf(HasSubstr(folder_.string()), HasSubstr("File too large")));
  EXPECT_EQ(read_all(file_), before);
  EXPECT_FALSE(std::filesystem::exists(temporary_name(file_)));
  write_step(21);  // the next one works
  EXPECT_EQ(latest_checkpoint(folder_), checkpoint_path(folder_, 21));
}

}  // namespace
}  // namespace minipipe::core
