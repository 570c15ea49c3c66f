#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "data/hdf5_handle.hpp"
#include "data/token_file.hpp"
#include "data/token_writer.hpp"
#include "unit_tests/data/temporary.hpp"

namespace minipipe::data {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;
using testing::write_llmc;
using testing::write_raw;

std::vector<std::uint16_t> some_ids(std::int64_t count, std::uint32_t vocab) {
  std::vector<std::uint16_t> ids(count);
  for (std::int64_t i = 0; i < count; ++i)
    ids[i] = static_cast<std::uint16_t>((static_cast<std::uint32_t>(i) * 7919u + 13u) % vocab);
  return ids;
}

// All ids, and a piece from the middle, are those expected.
void expect_ids(const TokenFile& file, const std::vector<std::uint16_t>& ids) {
  ASSERT_EQ(file.size(), std::ssize(ids));
  std::vector<std::int32_t> all(ids.size());
  file.read(0, file.size(), all.data());
  EXPECT_EQ(all, std::vector<std::int32_t>(ids.begin(), ids.end()));
  std::vector<std::int32_t> piece(3);
  file.read(5, 3, piece.data());
  EXPECT_EQ(piece, std::vector<std::int32_t>(ids.begin() + 5, ids.begin() + 8));
}

void write_hdf5(const std::string& path, const std::vector<std::int32_t>& ids, std::int64_t vocab) {
  TokenWriter writer(path, vocab, "test");
  writer.append(std::span<const std::int32_t>(ids));
  writer.close();
  writer.publish();
}

// An HDF5 file with one 1-D dataset of the given name and type, and no attributes.
void write_bare_hdf5(const std::string& path, const char* name, hid_t stored, const std::vector<std::int32_t>& ids) {
  const Hdf5Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, "create");
  const hsize_t extent = ids.size();
  const Hdf5Handle space(H5Screate_simple(1, &extent, nullptr), H5Sclose, "space");
  const Hdf5Handle set(H5Dcreate2(file.id(), name, stored, space.id(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose,
                       "dataset");
  check_hdf5(H5Dwrite(set.id(), H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, ids.data()), "write");
}

TEST(TokenFile, FlatRoundTrip) {
  const TemporaryFolder folder;
  const auto ids = some_ids(1001, 50257);
  write_raw(folder / "train.bin", ids);
  const TokenFile file = open_token_file(folder / "train.bin", 50257, 64, "data.train");
  EXPECT_EQ(file.format(), TokenFormat::flat_uint16);
  EXPECT_FALSE(file.entropy().has_value());
  expect_ids(file, ids);
}

TEST(TokenFile, LlmcRoundTripWhateverItsName) {
  const TemporaryFolder folder;
  const auto ids = some_ids(1000, 50257);
  write_llmc(folder / "train.h5", ids, 1000);
  const TokenFile file = open_token_file(folder / "train.h5", 50257, 64, "data.train");
  EXPECT_EQ(file.format(), TokenFormat::llmc);
  expect_ids(file, ids);
}

TEST(TokenFile, LlmcOfLlama3HoldsUint32) {
  const TemporaryFolder folder;
  std::vector<std::int32_t> words(256, 0);
  words[0] = 20240801;
  words[1] = 7;
  words[2] = 3;
  words.insert(words.end(), {128000, 5, 70000});
  write_raw(folder / "train.bin", words);
  const TokenFile file = open_token_file(folder / "train.bin", 128256, 2, "data.train");
  std::vector<std::int32_t> ids(3);
  file.read(0, 3, ids.data());
  EXPECT_EQ(ids, (std::vector<std::int32_t>{128000, 5, 70000}));
}

TEST(TokenFile, Hdf5RoundTripInEachWidth) {
  const TemporaryFolder folder;
  for (const std::int64_t vocab : {256, 50257, 65536, 128256}) {
    SCOPED_TRACE(vocab);
    auto ids = some_ids(1003, static_cast<std::uint32_t>(std::min<std::int64_t>(vocab, 65536)));
    write_hdf5(folder / "t.bin", std::vector<std::int32_t>(ids.begin(), ids.end()), vocab);
    const TokenFile file = open_token_file(folder / "t.bin", vocab, 64, "data.train");
    EXPECT_EQ(file.format(), TokenFormat::hdf5);
    expect_ids(file, ids);
  }
}

TEST(TokenFile, Hdf5WithoutAttributesIsAccepted) {
  const TemporaryFolder folder;
  write_bare_hdf5(folder / "t.h5", "tokens", H5T_STD_U16BE, {1, 2, 300, 4});
  const TokenFile file = open_token_file(folder / "t.h5", 301, 3, "data.train");
  std::vector<std::int32_t> ids(4);
  file.read(0, 4, ids.data());
  EXPECT_EQ(ids, (std::vector<std::int32_t>{1, 2, 300, 4}));
}

TEST(TokenFile, ReadBeyondTheEndThrows) {
  const TemporaryFolder folder;
  write_raw(folder / "t.bin", some_ids(100, 256));
  const TokenFile file = open_token_file(folder / "t.bin", 256, 10, "data.train");
  std::vector<std::int32_t> out(100);
  EXPECT_THROW(file.read(1, 100, out.data()), std::out_of_range);
  EXPECT_THROW(file.read(-1, 2, out.data()), std::out_of_range);
  EXPECT_NO_THROW(file.read(99, 1, out.data()));
}

// A dataset of more than 1 GiB takes little room on the disk here, as chunks that were never written read as 0.
TEST(TokenFile, LargeHdf5IsReadByPiecesAndCheckedWhenRead) {
  const TemporaryFolder folder;
  const std::int64_t size = (std::int64_t{1} << 29) + 1000;
  {
    const Hdf5Handle file(H5Fcreate((folder / "t.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, "create");
    const Hdf5Handle layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "layout");
    const hsize_t chunk = 1 << 16, extent = size, start = size - 4, count = 4;
    check_hdf5(H5Pset_chunk(layout.id(), 1, &chunk), "chunk");
    const Hdf5Handle space(H5Screate_simple(1, &extent, nullptr), H5Sclose, "space");
    const Hdf5Handle set(H5Dcreate2(file.id(), "tokens", H5T_STD_U16LE, space.id(), H5P_DEFAULT, layout.id(), H5P_DEFAULT),
                         H5Dclose, "dataset");
    const Hdf5Handle memory(H5Screate_simple(1, &count, nullptr), H5Sclose, "space");
    check_hdf5(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, &start, nullptr, &count, nullptr), "select");
    const std::int32_t last[4] = {11, 12, 300, 14};
    check_hdf5(H5Dwrite(set.id(), H5T_NATIVE_INT32, memory.id(), space.id(), H5P_DEFAULT, last), "write");
  }
  ASSERT_LT(std::filesystem::file_size(folder / "t.h5"), 1u << 20);
  const TokenFile file = open_token_file(folder / "t.h5", 256, 64, "data.train");
  ASSERT_EQ(file.size(), size);
  std::vector<std::int32_t> ids(4, -1);
  file.read(size - 6, 4, ids.data());
  EXPECT_EQ(ids, (std::vector<std::int32_t>{0, 0, 11, 12}));
  expect_error<InputError>([&] { file.read(size - 4, 4, ids.data()); },
                           {"data.train", "position " + std::to_string(size - 2) + " is 300", "model.vocab = 256"});
}

// Each of these expects the key, the path, what was found and what to do about it.
class TokenFileError : public ::testing::Test {
 protected:
  void expect(std::vector<std::string> parts, std::int64_t vocab = 256, std::int64_t sequence = 8) const {
    parts.push_back("data.train");
    parts.push_back(path_);
    expect_error<InputError>([&] { open_token_file(path_, vocab, sequence, "data.train"); }, parts);
  }
  TemporaryFolder folder_;
  std::string path_ = folder_ / "t.bin";
};

TEST_F(TokenFileError, Missing) { expect({"does not exist", "relative to the working directory", "jobs/prepare-sample.sh"}); }

TEST_F(TokenFileError, Folder) {
  std::filesystem::create_directory(path_);
  expect({"is not a regular file", "give the path"});
}

TEST_F(TokenFileError, Empty) {
  write_raw(path_, std::string());
  expect({"is empty", "minipipe prepare"});
}

TEST_F(TokenFileError, EmptyHdf5) {
  write_hdf5(path_, {}, 256);
  expect({"is empty", "/tokens", "minipipe prepare"});
}

TEST_F(TokenFileError, TruncatedLlmc) {
  write_llmc(path_, some_ids(90, 256), 100);
  expect({"llm.c", "truncated", "says 100 tokens", "room for 90", "copy it again"});
}

TEST_F(TokenFileError, LlmcHeaderCutOff) {
  write_raw(path_, std::vector<std::int32_t>{20240520, 1, 100});
  expect({"llm.c", "truncated", "12 bytes", "write it again"});
}

TEST_F(TokenFileError, LlmcWithTooMuch) {
  write_llmc(path_, some_ids(110, 256), 100);
  expect({"llm.c", "1244 bytes, more than the 100 tokens", "write it again"});
}

TEST_F(TokenFileError, LlmcOfAnotherVersion) {
  write_llmc(path_, some_ids(100, 256), 100, 2);
  expect({"llm.c", "version 2, not 1", "write it again"});
}

TEST_F(TokenFileError, FlatWithOddSize) {
  write_raw(path_, some_ids(100, 256));
  write_raw(path_, std::vector<char>{'\0'}, true);
  expect({"odd number of bytes (201)", "truncated", "copy it again"});
}

TEST_F(TokenFileError, FlatIdTooLarge) {
  auto ids = some_ids(100, 256);
  ids[37] = 300;
  ids[38] = 999;
  write_raw(path_, ids);
  expect({"flat uint16", "position 37 is 300", "model.vocab = 256", "set model.vocab", "no header"});
}

TEST_F(TokenFileError, IdTooLargeBehindTheFirstBlock) {
  auto ids = some_ids(200000, 256);
  ids[150001] = 256;
  write_llmc(path_, ids, 200000);
  expect({"llm.c", "position 150001 is 256", "model.vocab = 256"});
}

TEST_F(TokenFileError, Uint32IdBeyondInt32) {
  write_bare_hdf5(path_, "tokens", H5T_STD_U32LE, std::vector<std::int32_t>(20, 1));
  ASSERT_NO_THROW(open_token_file(path_, 256, 8, "data.train"));
  std::vector<std::uint32_t> words(256 + 12, 0);
  words[0] = 20240801;
  words[1] = 7;
  words[2] = 12;
  words[256 + 4] = 0xfffffffeu;
  write_raw(path_, words);
  expect({"position 4 is 4294967294", "model.vocab"});
}

TEST_F(TokenFileError, Hdf5OfALargerVocabulary) {
  write_hdf5(path_, std::vector<std::int32_t>(100, 7), 50257);
  expect({"vocabulary of 50257", "model.vocab = 256", "set model.vocab"});
  EXPECT_NO_THROW(open_token_file(path_, 50304, 8, "data.train"));
}

TEST_F(TokenFileError, TooShort) {
  write_raw(path_, some_ids(8, 256));
  expect({"holds 8 tokens", "train.sequence = 8 needs 9", "lower train.sequence"});
  EXPECT_NO_THROW(open_token_file(path_, 256, 7, "data.train"));
}

TEST_F(TokenFileError, Text) {
  write_raw(path_, std::string("Fast text, na\xc3\xafve text, and more of it\n"));
  expect({"looks like text", "minipipe prepare --text"});
}

TEST_F(TokenFileError, ForeignKinds) {
  using namespace std::string_literals;
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"\x1f\x8b\x08\0\0\0\0\0"s, "looks like a gzip file"}, {"\x89PNG\r\n\x1a\n\0\0"s, "looks like a PNG image"},
      {"PK\x03\x04\0\0"s, "looks like a zip file"},          {"\x28\xb5\x2f\xfd\0\0"s, "looks like a zstd file"},
      {"\x93NUMPY\x01\0v\0"s, "looks like a NumPy .npy"},    {"PAR1\x15\0"s, "looks like a Parquet file"}};
  for (const auto& [bytes, text] : kinds) {
    write_raw(path_, bytes);
    expect({text, "not like a token file; "}, 65536, 1);
  }
  write_raw(path_, kinds[0].first);
  expect({"gzip -dc"});
  write_raw(path_, kinds[4].first);
  expect({"tofile"});
}

TEST_F(TokenFileError, Hdf5WithoutTokens) {
  write_bare_hdf5(path_, "weights", H5T_STD_U16LE, {1, 2, 3});
  expect({"without a dataset /tokens", "minipipe prepare"});
}

TEST_F(TokenFileError, Hdf5OfAnotherKind) {
  write_bare_hdf5(path_, "tokens", H5T_STD_U16LE, {1, 2, 3});
  {
    const Hdf5Handle file(H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose, "open");
    const Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "type");
    H5Tset_size(type.id(), 6);
    const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose, "space");
    const Hdf5Handle format(H5Acreate2(file.id(), "format", type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                            "attribute");
    H5Awrite(format.id(), type.id(), "other\0");
  }
  expect({"'format' is 'other'", "minipipe prepare"});
}

TEST_F(TokenFileError, Hdf5OfANewerVersion) {
  write_hdf5(path_, std::vector<std::int32_t>(100, 7), 256);
  {
    const Hdf5Handle file(H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose, "open");
    const Hdf5Handle version(H5Aopen(file.id(), "version", H5P_DEFAULT), H5Aclose, "attribute");
    const std::int64_t newer = 2;
    H5Awrite(version.id(), H5T_NATIVE_INT64, &newer);
  }
  expect({"version 2", "reads version 1", "prepare --force"});
}

TEST_F(TokenFileError, Hdf5WithSignedOrFloatTokens) {
  write_bare_hdf5(path_, "tokens", H5T_STD_I64LE, std::vector<std::int32_t>(20, 1));
  expect({"uint8, uint16 or uint32", "h5py"});
  write_bare_hdf5(path_, "tokens", H5T_IEEE_F32LE, std::vector<std::int32_t>(20, 1));
  expect({"uint8, uint16 or uint32", "h5py"});
}

TEST_F(TokenFileError, TruncatedHdf5) {
  write_hdf5(path_, std::vector<std::int32_t>(5000, 7), 256);
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2);
  expect({"HDF5 cannot open it", "truncated", "prepare --force"});
}

}  // namespace
}  // namespace minipipe::data
