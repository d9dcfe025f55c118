#include "tests/process/python/interpreters.h"

#include <cstdlib>
#include <filesystem>
#include <set>

#include "harness/entry/program.h"
#include "harness/entry/tool.h"

namespace lockstep::test {

namespace fs = std::filesystem;

std::vector<std::string> interpreters() {
  std::vector<std::string> found{LOCKSTEP_PYTHON};
  const char* const home = std::getenv("HOME");
  for (const int minor : {11, 12, 13}) {
    const std::string name = "python3." + std::to_string(minor);
    if (const auto path = entry::find_in_path(name))
      found.push_back(*path);
    std::error_code failed;
    for (const auto& version : fs::directory_iterator(
             fs::path(home == nullptr ? "/nonexistent" : home) / ".pyenv/versions", failed)) {
      if (fs::exists(version.path() / "bin" / name, failed))
        found.push_back((version.path() / "bin" / name).string());
    }
  }
  std::set<std::string> known;
  for (const std::string& python : found) {
    const auto result = entry::run_tool({python, "-c",
                                         "import os, sys, ctypes\n"
                                         "assert (3, 11) <= sys.version_info < (3, 14)\n"
                                         "print(os.path.realpath(sys.executable), end='')"});
    if (result.status == 0)
      known.insert(result.output);
  }
  return {known.begin(), known.end()};
}

}  // namespace lockstep::test
