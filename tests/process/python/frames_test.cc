// Python frames read as raw memory are what each interpreter says they are: of every CPython of a
// known version on this host.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/entry/tool.h"
#include "harness/history/reader.h"
#include "tests/process/python/interpreters.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

std::string shown(const CallSite& site) {
  std::string text;
  for (const Frame& frame : site.frames)
    text += "\t" + frame.file + "|" + std::to_string(frame.line) + "|" + frame.function;
  return text;
}

Process history_in(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    auto source = history::FileSource::open(entry.path().string());
    auto read = history::read_process(std::move(*source), entry.path().filename().string());
    if (read)
      return std::move(read->process);
  }
  ADD_FAILURE() << "no history in " << directory;
  return {};
}

void compare(const std::string& python) {
  SCOPED_TRACE(python);
  std::string pattern = (fs::temp_directory_path() / "lockstep-frames-XXXXXX").string();
  const fs::path directory = ::mkdtemp(pattern.data());
  const entry::ToolResult result = entry::run_tool(
      {python, "-B", LOCKSTEP_FRAMES_PROGRAM, LOCKSTEP_FRAMES_PROBE, directory.string()});
  ASSERT_EQ(result.status, 0) << result.output;
  const Process process = history_in(directory);
  std::istringstream lines(result.output);
  std::size_t compared = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos) {
      std::printf("%s: %s ns at depth 30\n", python.c_str(), line.c_str());
      continue;
    }
    const auto site = static_cast<std::size_t>(std::stoul(line.substr(0, tab)));
    ASSERT_LT(site, process.sites.size());
    EXPECT_NE(site, 0U) << line;
    EXPECT_EQ(shown(process.sites[site]), line.substr(tab));
    ++compared;
  }
  EXPECT_EQ(compared, 21U);
  fs::remove_all(directory);
}

TEST(PythonFrames, AreWhatTheInterpreterSays) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's runtime cannot enter Python late";
#endif
  for (const std::string& python : interpreters())
    compare(python);
}

}  // namespace
}  // namespace lockstep::test
