// Compares output with a file under tests/golden. LS_UPDATE_GOLDEN=1 writes the file instead; the
// diff is reviewed.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace lockstep::testing {

inline std::filesystem::path golden_path(std::string_view name) {
  return std::filesystem::path(LOCKSTEP_GOLDEN_DIR) / name;
}

inline void expect_golden(std::string_view name, const std::string& actual) {
  const std::filesystem::path path = golden_path(name);
  if (const char* update = std::getenv("LS_UPDATE_GOLDEN");
      update != nullptr && std::string_view(update) == "1") {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << actual;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path << " is not there; LS_UPDATE_GOLDEN=1 writes it";
  const std::string expected((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(actual, expected) << path
                              << "; if the new output is meant, repeat with LS_UPDATE_GOLDEN=1";
}

}  // namespace lockstep::testing
