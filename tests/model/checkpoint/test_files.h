// Temporary folders and hand-made .safetensors bytes for tests.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "triforce/error.h"

namespace triforce::testing_files {

// A folder that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "triforce-XXXXXX").string();
    TF_CHECK(::mkdtemp(name.data()) != nullptr, "mkdtemp {}", name);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view contents) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
    out.close();
    TF_CHECK(out.good(), "write {}", file.string());
    return file;
  }

 private:
  std::filesystem::path path_;
};

// The length field of a header, then the header, then `data_bytes` zeros.
inline std::string safetensors_bytes(std::string_view header, std::size_t data_bytes) {
  std::string out;
  for (int shift = 0; shift < 64; shift += 8) {
    out += static_cast<char>((static_cast<std::uint64_t>(header.size()) >> shift) & 0xFFU);
  }
  out.append(header);
  out.append(data_bytes, '\0');
  return out;
}

// One entry of a header: "name":{"dtype":...,"shape":[...],"data_offsets":[...]}.
inline std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                         std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", name, dtype,
                     shape, offsets);
}

// The kind of the Error that `call` throws, "accept" if it throws none. Anything but a one-line
// Error of bad input is a failure.
template <class Call>
std::string verdict(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kBadInput) << e.what();
    const std::string text = e.what();
    EXPECT_EQ(text.find_first_of("\n\r"), std::string::npos) << text;
    EXPECT_LT(text.size(), 2000U) << text.substr(0, 200);
    return e.kind();
  }
  return "accept";
}

// The message of the Error that `call` throws, empty if it throws none.
template <class Call>
std::string message(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

}  // namespace triforce::testing_files
