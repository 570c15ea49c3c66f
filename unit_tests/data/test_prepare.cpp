#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "data/prepare.hpp"

#ifdef MINIPIPE_HAVE_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

#include "data/synthetic.hpp"
#include "data/token_file.hpp"
#include "unit_tests/data/temporary.hpp"

namespace minipipe::data {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;
using testing::write_raw;

std::vector<std::int32_t> all_ids(const std::string& path, std::int64_t vocab) {
  const TokenFile file = open_token_file(path, vocab, 1, "data.train");
  std::vector<std::int32_t> ids(file.size());
  file.read(0, file.size(), ids.data());
  return ids;
}

class PrepareTest : public ::testing::Test {
 protected:
  PrepareTest() {
    write_raw(folder_ / "a.txt", "The first text.\n" + std::string(500, 'a') + "\n");
    write_raw(folder_ / "b.txt", "The second text, na\xc3\xafve.\n" + std::string(450, 'b') + "\n");
    options_.text = {folder_ / "a.txt", folder_ / "b.txt"};
    options_.out = folder_ / "out/sample";
    options_.validation = 0.25;
  }
  std::string out(const std::string& name) const { return options_.out + "/" + name; }
  void expect_nothing_left() const {
    if (!std::filesystem::exists(options_.out)) return;
    EXPECT_TRUE(std::filesystem::is_empty(options_.out));
  }
  TemporaryFolder folder_;
  PrepareOptions options_;
  std::ostringstream log_;
};

TEST_F(PrepareTest, BytesAreCutAtTheTail) {
  prepare(options_, log_);
  std::string text;
  for (const std::string& path : options_.text) {
    std::ostringstream whole;
    whole << std::ifstream(path, std::ios::binary).rdbuf();
    text += whole.str();
  }
  const auto train = all_ids(out("train.h5"), 256);
  const auto validation = all_ids(out("validation.h5"), 256);
  EXPECT_EQ(std::ssize(validation), std::llround(0.25 * static_cast<double>(text.size())));
  std::string joined;
  for (const auto& part : {train, validation}) {
    for (std::int32_t id : part) joined.push_back(static_cast<char>(id));
  }
  EXPECT_EQ(joined, text);
  EXPECT_NE(log_.str().find("train.h5: " + std::to_string(train.size()) + " tokens"), std::string::npos) << log_.str();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(options_.out), {}), 2) << "a temporary file was left";
}

TEST_F(PrepareTest, RefusesToOverwriteUnlessForced) {
  prepare(options_, log_);
  const auto before = all_ids(out("train.h5"), 256);
  options_.validation = 0.5;
  expect_error<InputError>([&] { prepare(options_, log_); }, {out("train.h5"), "is there already", "--force"});
  EXPECT_EQ(all_ids(out("train.h5"), 256), before);
  options_.force = true;
  prepare(options_, log_);
  EXPECT_LT(all_ids(out("train.h5"), 256).size(), before.size());
}

TEST_F(PrepareTest, UnusableOptionsAndTexts) {
  const auto expect = [&](const PrepareOptions& options, const std::vector<std::string>& parts) {
    expect_error<InputError>([&] { prepare(options, log_); }, parts);
    expect_nothing_left();
  };
  PrepareOptions bad = options_;
  bad.text = {folder_ / "none.txt"};
  expect(bad, {"--text", "none.txt", "cannot be opened"});
  bad.text = {folder_.path()};
  expect(bad, {"--text", "is a folder", "give the text files"});
  write_raw(folder_ / "empty.txt", std::string());
  bad.text = {folder_ / "empty.txt"};
  expect(bad, {"--text", "empty.txt", "is empty"});
  write_raw(folder_ / "c.gz", std::string("\x1f\x8b\x08 compressed"));
  bad.text = {folder_ / "c.gz"};
  expect(bad, {"--text", "c.gz", "gzip file", "gzip -dc"});
  bad.text = {};
  expect(bad, {"nothing to prepare", "--text FILE"});
  bad = options_;
  bad.validation = 0;
  expect(bad, {"--validation", "between 0 and 1"});
  bad = options_;
  bad.synthetic = true;
  expect(bad, {"--synthetic and --text"});
  bad = options_;
  bad.out = "";
  expect(bad, {"--out is missing"});
  write_raw(folder_ / "short.txt", std::string("abc"));
  bad = options_;
  bad.text = {folder_ / "short.txt"};
  expect(bad, {"too short", "validation.h5", "more text"});
}

TEST_F(PrepareTest, OneAtATimeInAFolder) {
  prepare(options_, log_);
  options_.force = true;
  const int folder = ::open(options_.out.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(folder, LOCK_EX), 0);
  write_raw(out("train.h5.tmp"), std::string("of the other"));
  expect_error<InputError>([&] { prepare(options_, log_); },
                           {"--out: another minipipe prepare is writing into", "another folder"});
  EXPECT_EQ(std::filesystem::file_size(out("train.h5.tmp")), 12U) << "the other's file was touched";
  ::close(folder);
  EXPECT_NO_THROW(prepare(options_, log_));
}

TEST_F(PrepareTest, UnwritableFolder) {
  options_.out = folder_ / "a.txt/sample";  // below a file: not even root can make it
  expect_error<InputError>([&] { prepare(options_, log_); }, {options_.out, "--out", "name a folder"});
  options_.out = "/proc/minipipe";
  expect_error<InputError>([&] { prepare(options_, log_); }, {"/proc/minipipe"});
  options_.out = "/proc";  // a folder that is there and takes no files
  expect_error<RunError>([&] { prepare(options_, log_); }, {"/proc/train.h5", "check that the folder is writable"});
}

// In a child process: a limit on the size of files stands in for a full disk. Exit status 7 if it ended in RunError.
[[noreturn]] void prepare_with_little_space(const PrepareOptions& options) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{1 << 20, 1 << 20};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  int status = 1;
  try {
    std::ostringstream log;
    prepare(options, log);
  } catch (const RunError& error) {
    std::fputs(error.what(), stderr);
    status = 7;
  }
  std::exit(status);  // with its handlers: HDF5 closes at exit what it thinks is open, and must not trip over the failed file
}

TEST_F(PrepareTest, NoSpaceLeft) {
  write_raw(folder_ / "large.txt", std::string(3 << 20, 'x'));
  options_.text = {folder_ / "large.txt"};
  EXPECT_EXIT(prepare_with_little_space(options_), ::testing::ExitedWithCode(7), "cannot write '.*train.h5'.*has space left");
  expect_nothing_left();
}

TEST_F(PrepareTest, Synthetic) {
  options_.text.clear();
  options_.synthetic = true;
  options_.tokens = 40000;
  options_.vocab = 300;
  options_.seed = 5;
  prepare(options_, log_);
  const TokenFile train = open_token_file(out("train.h5"), 300, 64, "data.train");
  const TokenFile validation = open_token_file(out("validation.h5"), 300, 64, "data.validation");
  EXPECT_EQ(train.size(), 30000);
  EXPECT_EQ(validation.size(), 10000);
  const SyntheticLanguage language(300, 5);
  for (const TokenFile* file : {&train, &validation}) {
    ASSERT_TRUE(file->entropy().has_value());
    EXPECT_EQ(*file->entropy(), language.entropy());
  }
  const auto text = language.generate(40000, 5);
  EXPECT_EQ(all_ids(out("train.h5"), 300), std::vector<std::int32_t>(text.begin(), text.begin() + 30000));
  EXPECT_EQ(all_ids(out("validation.h5"), 300), std::vector<std::int32_t>(text.begin() + 30000, text.end()));
  EXPECT_NE(log_.str().find("entropy"), std::string::npos);
}

#ifdef MINIPIPE_HAVE_SENTENCEPIECE
// A length-delimited protobuf field; all lengths here are below 128.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

// A unigram model written by hand in SentencePiece's format (sentencepiece_model.proto: pieces = 1, trainer_spec = 2,
// normalizer_spec = 3; in a piece: text = 1, score = 2, type = 3), because training one needs another library.
// `words` are cheap, single letters dear; ids 0, 1, 2 are <unk>, <s>, </s> as by default.
std::string sentencepiece_model(const std::vector<std::string>& words) {
  std::string model;
  const auto add = [&](const std::string& piece, float score, char type) {
    std::string bytes = field(1, piece) + '\x15' + std::string(sizeof score, '\0') + '\x18' + type;
    std::memcpy(bytes.data() + bytes.size() - 2 - sizeof score, &score, sizeof score);
    model += field(1, bytes);
  };
  const char normal = 1, unknown = 2, control = 3;
  add("<unk>", 0, unknown);
  add("<s>", 0, control);
  add("</s>", 0, control);
  for (const std::string& word : words) add("\xe2\x96\x81" + word, -1, normal);
  add("\xe2\x96\x81", -10, normal);
  for (char letter = 'a'; letter <= 'z'; ++letter) add(std::string(1, letter), -10, normal);
  return model + field(2, "") + field(3, "");
}

TEST_F(PrepareTest, SentencePiece) {
  std::string text;
  const std::vector<std::string> words = {"pipeline", "stage", "gradient", "forward", "backward", "update", "weight", "bubble"};
  for (int line = 0; line < 400; ++line) {
    for (int word = 0; word < 6; ++word)
      text += words[(line * 5 + word * word * 3 + line * word) % 8] + (word < 5 ? " " : "\n");
  }
  write_raw(folder_ / "words.txt", text);
  // One word is left out of the model: its letters stand for it.
  write_raw(folder_ / "m.model", sentencepiece_model({words.begin(), words.end() - 1}));
  options_.text = {folder_ / "words.txt"};
  options_.sentencepiece_model = folder_ / "m.model";
  prepare(options_, log_);

  sentencepiece::SentencePieceProcessor processor;
  ASSERT_TRUE(processor.Load(options_.sentencepiece_model).ok());
  const std::int64_t vocab = processor.GetPieceSize();
  auto ids = all_ids(out("train.h5"), vocab);
  const auto train_size = ids.size();
  const auto validation = all_ids(out("validation.h5"), vocab);
  ids.insert(ids.end(), validation.begin(), validation.end());
  EXPECT_EQ(vocab, 3 + 7 + 27);
  EXPECT_EQ(ids[train_size - 1], processor.eos_id()) << "the cut is between lines";
  EXPECT_NEAR(static_cast<double>(validation.size()) / static_cast<double>(ids.size()), 0.25, 0.02);

  std::string decoded;
  std::vector<int> line;
  for (const std::int32_t id : ids) {
    if (id != processor.eos_id()) {
      line.push_back(id);
      continue;
    }
    std::string piece;
    ASSERT_TRUE(processor.Decode(line, &piece).ok());
    decoded += piece + "\n";
    line.clear();
  }
  EXPECT_EQ(decoded, text);
  EXPECT_NE(log_.str().find("model.vocab = " + std::to_string(vocab)), std::string::npos) << log_.str();
}

TEST_F(PrepareTest, NotASentencePieceModel) {
  options_.sentencepiece_model = folder_ / "a.txt";
  expect_error<InputError>([&] { prepare(options_, log_); }, {"--sentencepiece", "a.txt", "spm_train"});
  options_.sentencepiece_model = folder_ / "none.model";
  expect_error<InputError>([&] { prepare(options_, log_); }, {"--sentencepiece", "none.model"});
  expect_nothing_left();
}
#else
TEST_F(PrepareTest, WithoutSentencePiece) {
  options_.sentencepiece_model = folder_ / "m.model";
  expect_error<InputError>([&] { prepare(options_, log_); }, {"--sentencepiece", "built without SentencePiece"});
}
#endif

}  // namespace
}  // namespace minipipe::data
