// Goal: the tables of README.md say what the code says. Method: the rows are read out of the file
// and compared.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "harness/verdict/catalogue.h"
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

TEST(Readme, ExampleIsWhatTheReportLooksLike) {
  const std::string readme = text_of(source("README.md"));
  const std::string golden = text_of(source("tests/golden/report/hang.100.txt"));
  const std::size_t begin = readme.find("\nerror[") + 1;
  ASSERT_NE(begin, 0U);
  const std::string example = readme.substr(begin, readme.find("```", begin) - begin);
  EXPECT_NE(golden.find("\n" + example), std::string::npos) << example;
}

TEST(Readme, CodesHaveTheTitlesOfTheCatalogue) {
  for (const auto& [code, title] : rows("LS[0-9]+")) {
    const CatalogueEntry* entry = find_code(code);
    ASSERT_NE(entry, nullptr) << code;
    EXPECT_EQ(title, entry->title) << code;
  }
}

TEST(Readme, CodesAreThoseThatSomethingReports) {
  std::set<std::string> listed, reported;
  for (const auto& row : rows("LS[0-9]+"))
    listed.insert(row.first);
  // Codes of findings, and of reasons ("LS901: ..."). judge.cc also lists codes to put them in
  // order.
  const std::regex finding("\"(LS[0-9]{3})\""), reason("\"(LS[0-9]{3}):");
  for (const std::string_view folder : {"checkers", "scenarios"}) {
    for (const auto& entry : fs::recursive_directory_iterator(source(folder))) {
      const fs::path& path = entry.path();
      if (path.extension() != ".cc" && path.extension() != ".h")
        continue;
      const std::string text = text_of(path);
      for (const std::regex* pattern : {&finding, &reason}) {
        if (path.filename() == "judge.cc" && pattern == &finding)
          continue;
        for (std::sregex_iterator at(text.begin(), text.end(), *pattern), end; at != end; ++at)
          reported.insert((*at)[1]);
      }
    }
  }
  EXPECT_EQ(listed, reported);
}

}  // namespace
}  // namespace lockstep
