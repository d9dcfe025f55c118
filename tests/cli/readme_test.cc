// Goal: the table of exit statuses in README.md says what the code says. Method: the rows are read
// out of the file and compared.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "harness/verdict/exit_codes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::pair<std::string, std::string>>;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

fs::path source(std::string_view path) { return fs::path(LOCKSTEP_SOURCE_DIR) / path; }

/// The first two cells of every table row whose first cell matches.
Rows rows(const std::string& first_cell) {
  const std::regex pattern("^\\| *(" + first_cell + ") *\\| *(.*?) *\\|.*$");
  std::istringstream stream(text_of(source("README.md")));
  Rows found;
  std::smatch match;
  for (std::string line; std::getline(stream, line);) {
    if (std::regex_match(line, match, pattern))
      found.emplace_back(match[1], match[2]);
  }
  return found;
}

TEST(Readme, ExitStatusesAreThoseOfTheProgram) {
  Rows expected;
  for (const ExitMeaning& meaning : kExitMeanings)
    expected.emplace_back(std::to_string(status_of(meaning.code)), meaning.meaning);
  EXPECT_EQ(rows("[0-9]+"), expected);
}

}  // namespace
}  // namespace lockstep
