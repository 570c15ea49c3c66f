#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/io/checkpoint.hpp"
#include "core/io/checkpoint_format.hpp"
#include "core/io/durable.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/io/scratch.hpp"

namespace minipipe::core {
namespace {

using ::testing::AllOf;
using testing::error_text;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_all;
using testing::write_all;

constexpr const char* attention = "transformer.h.0.attn.c_attn.weight";

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

  std::vector<TensorRef> tensors() const {
    return {{attention, {30, 10}, weight_.data(), m_.data(), v_.data()},
            {"transformer.ln_f.bias", {3}, bias_.data(), nullptr, nullptr}};
  }
  void write(const std::filesystem::path& path) const { write_checkpoint(MPI_COMM_WORLD, path, tensors(), state_); }
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
  std::vector<float> weight(300), m(300), v(300), bias(3);
  read_tensors(file_, {{attention, {30, 10}, weight.data(), m.data(), v.data()},
                       {"transformer.ln_f.bias", {3}, bias.data(), nullptr, nullptr}});
  EXPECT_EQ(weight, weight_);
  EXPECT_EQ(m, m_);
  EXPECT_EQ(v, v_);
  EXPECT_EQ(bias, bias_);
}

TEST_F(Checkpoint, AStageReadsItsPartOnly) {
  write(file_);
  std::vector<float> bias(3);
  read_tensors(file_, {{"transformer.ln_f.bias", {3}, bias.data(), nullptr, nullptr}});
  EXPECT_EQ(bias, bias_);
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
  std::vector<float> values(1200);
  const std::string part = error_text<InputError>([&] {
    read_tensors(file_, {{attention, {60, 20}, values.data()}, {"lm_head.weight", {7, 3}, values.data()}});
  });
  EXPECT_THAT(part, AllOf(HasSubstr(attention), HasSubstr("lm_head.weight"), Not(HasSubstr("ln_f"))));
}

TEST_F(Checkpoint, MissingMomentsAreTold) {
  write(file_);
  std::vector<float> bias(3), m(3);
  EXPECT_THAT(error_text<InputError>([&] {
                read_tensors(file_, {{"transformer.ln_f.bias", {3}, bias.data(), m.data()}});
              }),
              HasSubstr("/optimizer/transformer.ln_f.bias/m"));
}

TEST_F(Checkpoint, MissingFilesAndOtherFilesAreTold) {
  EXPECT_THAT(error_text<InputError>([&] { read_checkpoint_state(file_); }), HasSubstr("no such checkpoint"));
  write_all(file_, "text");
  EXPECT_THAT(error_text<InputError>([&] { read_checkpoint_state(file_); }), HasSubstr("not an HDF5 file"));
  hdf5::File::create(file_).close();
  EXPECT_THAT(error_text<InputError>([&] { read_checkpoint_state(file_); }), HasSubstr("not a minipipe checkpoint"));
  {
    hdf5::File file = hdf5::File::create(file_);
    file.set("/", "format", std::string(checkpoint_format));
    file.set<std::int32_t>("/", "format_version", checkpoint_format_version + 1);
    file.close();
  }
  EXPECT_THAT(error_text<InputError>([&] { read_checkpoint_state(file_); }), HasSubstr("format version 2"));
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
  std::vector<float> weight(300), m(300);
  EXPECT_NO_THROW(read_tensors(file_, {{attention, {30, 10}, weight.data()}}));
  EXPECT_THAT(error_text<InputError>([&] {
                read_tensors(file_, {{attention, {30, 10}, weight.data(), m.data()}});
              }),
              AllOf(HasSubstr("damaged"), HasSubstr("/m")));
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
  auto twice = tensors();
  twice.push_back(twice.front());
  EXPECT_THAT(error_text<RunError>([&] { write_checkpoint(MPI_COMM_WORLD, file_, twice, state_); }), HasSubstr(attention));
  EXPECT_THAT(error_text<RunError>([&] {
                write_checkpoint(MPI_COMM_WORLD, file_, {{"a/b", {3}, bias_.data()}}, state_);
              }),
              HasSubstr("a/b"));
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
    text = error_text<RunError>([&] {
      write_checkpoint(MPI_COMM_WORLD, file_, {{"large", {large.size()}, large.data(), large.data(), large.data()}}, state_);
    });
  }
  EXPECT_THAT(text, AllOf(HasSubstr(folder_.string()), HasSubstr("File too large")));
  EXPECT_EQ(read_all(file_), before);
  EXPECT_FALSE(std::filesystem::exists(temporary_name(file_)));
  write_step(21);  // the next one works
  EXPECT_EQ(latest_checkpoint(folder_), checkpoint_path(folder_, 21));
}

}  // namespace
}  // namespace minipipe::core
