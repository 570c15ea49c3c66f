#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "schedules/error.hpp"

namespace minipipe::data::testing {

// A folder that is removed with its contents at the end of a test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "minipipe_data_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw RunError("mkdtemp failed for " + name);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

template <class Element>
void write_raw(const std::string& path, const std::vector<Element>& elements, bool append = false) {
  std::ofstream stream(path, append ? std::ios::binary | std::ios::app : std::ios::binary);
  stream.write(reinterpret_cast<const char*>(elements.data()), static_cast<std::streamsize>(elements.size() * sizeof(Element)));
}

inline void write_raw(const std::string& path, const std::string& bytes) {
  write_raw(path, std::vector<char>(bytes.begin(), bytes.end()));
}

// The llm.c form; `stated` is the token count the header gives.
inline void write_llmc(const std::string& path, const std::vector<std::uint16_t>& ids, std::int32_t stated,
                       std::int32_t version = 1) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = 20240520;
  header[1] = version;
  header[2] = stated;
  write_raw(path, header);
  write_raw(path, ids, true);
}

// Runs `action`, which must throw `Error`, and checks that its text holds every one of `parts`.
template <class Error, class Action>
void expect_error(Action action, const std::vector<std::string>& parts) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }
}

}  // namespace minipipe::data::testing
