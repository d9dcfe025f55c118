// The saved runs of fixtures/histories, unpacked for a test.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/history/history_support.h"

namespace lockstep::testing {

/// Names, in order, of those that begin so.
inline std::vector<std::string> saved_runs(std::string_view begin = "") {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_HISTORIES)) {
    const std::string name = entry.path().stem().stem().string();
    if (entry.path().extension() == ".xz" && name.starts_with(begin))
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// One of them, in a directory of its own.
class SavedRun {
 public:
  explicit SavedRun(const std::string& name) {
    const std::string unpack = fmt::format("cd {} && {} -E tar xJf {}/{}.tar.xz", place_.path(),
                                           LOCKSTEP_CMAKE, LOCKSTEP_HISTORIES, name);
    if (std::system(unpack.c_str()) != 0)
      throw std::runtime_error("failed: " + unpack);
  }
  [[nodiscard]] std::string path() const { return place_.path(); }

 private:
  history::TempDir place_{};
};

}  // namespace lockstep::testing
