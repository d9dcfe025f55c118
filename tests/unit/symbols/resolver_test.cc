// Positions of this very program, looked up in its own object file.
#include "harness/symbols/resolver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

namespace lockstep::symbols {
namespace {

struct Here {
  const void* address{};
  std::int32_t line{};
};

// Where the caller is in it is the line of the call.
[[gnu::noinline]] const void* return_address() { return __builtin_return_address(0); }

[[gnu::noinline]] Here inside_a_function() {
  Here here;
  here.line = __LINE__ + 1;
  here.address = return_address();
  return here;
}

[[gnu::always_inline]] inline Here inside_an_inlined_function() {
  Here here;
  here.line = __LINE__ + 1;
  here.address = return_address();
  return here;
}

[[gnu::noinline]] Here around_the_inlined_function() { return inside_an_inlined_function(); }

/// The call itself stands in a header of the C++ library.
[[gnu::noinline, gnu::flatten]] Here inside_what_the_library_calls() {
  Here here;
  here.line = __LINE__ + 1;
  here.address = std::invoke(return_address);
  return here;
}

[[gnu::always_inline]] inline Here inside_an_inlined_loop(int rounds) {
  Here here;
  for (int round = 0; round < rounds; ++round) {
    here.line = __LINE__ + 1;
    here.address = return_address();
  }
  return here;
}

[[gnu::noinline]] Here around_the_inlined_loop(int rounds) {
  Here here;
  while (--rounds > 0)
    here = inside_an_inlined_loop(rounds);
  return here;
}

Frame frame_of(const Here& here) {
  Dl_info info{};
  EXPECT_NE(dladdr(here.address, &info), 0);
  const auto base = reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  return {std::filesystem::canonical("/proc/self/exe").string(),
          reinterpret_cast<std::uintptr_t>(here.address) - 1 - base, "", 0, ""};
}

/// The frame of this line of this file, and of a function whose name has this in it.
Frame resolved(const Here& here, const char* function) {
  Frame frame = frame_of(here);
  Resolver resolver;
  resolver.resolve(frame);
  EXPECT_EQ(frame.line, here.line);
  EXPECT_NE(frame.file.find("tests/unit/symbols/resolver_test.cc"), std::string::npos)
      << frame.file;
  EXPECT_NE(frame.function.find(function), std::string::npos) << frame.function;
  return frame;
}

TEST(Resolver, FindsFileLineAndFunction) {
  const Frame frame = resolved(inside_a_function(), "inside_a_function");
  EXPECT_EQ(frame.function.find("()"), std::string::npos) << frame.function;
}

TEST(Resolver, NamesTheInnermostInlinedFunction) {
  resolved(around_the_inlined_function(), "inside_an_inlined_function");
}

TEST(Resolver, OfWhatALibraryInlinesTheLineThatCallsIt) {
  resolved(inside_what_the_library_calls(), "inside_what_the_library_calls");
}

/// Looks the source of this file up where it is, which builds may have made relative.
std::vector<std::int32_t> loops_of(Frame frame) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(LOCKSTEP_SOURCE_DIR);
  Resolver().resolve(frame);
  std::filesystem::current_path(before);
  std::vector<std::int32_t> lines;
  for (const SourceLoop& loop : frame.loops)
    lines.push_back(loop.line);
  return lines;
}

TEST(Resolver, FindsTheLoopsAroundWhatIsInlinedAndAroundItsCall) {
  const Here here = around_the_inlined_loop(3);
  const Frame frame = resolved(here, "inside_an_inlined_loop");
  EXPECT_NE(frame.inlined_into.find("around_the_inlined_loop"), std::string::npos);
  EXPECT_EQ(loops_of(frame_of(here)), (std::vector<std::int32_t>{here.line + 7, here.line - 2}));
}

TEST(Resolver, FindsNoLoopsInASourceThatWasChangedSince) {
  Frame frame = frame_of(around_the_inlined_loop(3));
  const std::filesystem::path old =
      std::filesystem::path(testing::TempDir()) / ("lockstep-old-" + std::to_string(getpid()));
  std::filesystem::copy_file(frame.module, old);
  std::filesystem::last_write_time(old, std::filesystem::file_time_type::min());
  frame.module = old;
  EXPECT_EQ(loops_of(frame).size(), 0U);
  std::filesystem::remove(old);
}

/// Without the index of addresses, which clang does not write.
TEST(Resolver, AsksEachUnitWhereThereIsNoIndex) {
  const Here here = inside_a_function();
  Frame frame = frame_of(here);
  const std::string bare =
      std::filesystem::path(testing::TempDir()) / ("lockstep-resolver-" + std::to_string(getpid()));
  const std::string command =
      LOCKSTEP_OBJCOPY " --remove-section=.debug_aranges " + frame.module + " " + bare;
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  frame.module = bare;
  Resolver().resolve(frame);
  std::filesystem::remove(bare);
  EXPECT_EQ(frame.line, here.line);
  EXPECT_NE(frame.function.find("inside_a_function"), std::string::npos) << frame.function;
}

/// Whichever one unit an index is kept of: an address between two parts of it may be another's.
TEST(Resolver, AsksTheOthersWhereTheIndexedUnitHasNotTheAddress) {
  const Here here = inside_a_function();
  Frame frame = frame_of(here);
  const std::string place =
      std::filesystem::path(testing::TempDir()) / ("lockstep-index-" + std::to_string(getpid()));
  const auto objcopy = [&](const std::string& arguments) {
    return std::system(
        (LOCKSTEP_OBJCOPY " " + arguments + " " + frame.module + " " + place).c_str());
  };
  const std::string part = place + ".part";
  ASSERT_EQ(objcopy("--dump-section .debug_aranges=" + part), 0);
  std::ifstream file(part, std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(file), {});
  std::size_t units = 0;
  for (std::size_t at = 0; at + 4 < all.size(); ++units) {
    std::uint32_t length = 0;  // Of what follows it.
    std::memcpy(&length, all.data() + at, sizeof length);
    std::ofstream(part, std::ios::binary) << all.substr(at, length + sizeof length);
    ASSERT_EQ(objcopy("--update-section .debug_aranges=" + part), 0);
    Frame other = frame;
    other.module = place;
    Resolver().resolve(other);
    EXPECT_EQ(other.line, here.line) << "unit " << units;
    at += length + sizeof length;
  }
  EXPECT_GT(units, 1U);
  std::filesystem::remove(place);
  std::filesystem::remove(part);
}

TEST(Resolver, ShortensPathsBelowTheRoot) {
  Resolver resolver({.shorten = "/srv/job"});
  Frame inside{"/srv/job/src/train.py", 0, "/srv/job/src/train.py", 12, "main"};
  resolver.resolve(inside);
  EXPECT_EQ(inside.file, "src/train.py");
  Frame beside{"/srv/jobs/train.py", 0, "/srv/jobs/train.py", 12, "main"};
  resolver.resolve(beside);
  EXPECT_EQ(beside.file, "/srv/jobs/train.py");
}

TEST(Resolver, WithoutDebugInformationGivesTheSymbolAndNoLine) {
  void* const address = dlsym(RTLD_DEFAULT, "qsort");
  ASSERT_NE(address, nullptr);
  Dl_info info{};
  ASSERT_NE(dladdr(address, &info), 0);
  const auto offset =
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  Frame frame{info.dli_fname, offset + 4, "", 0, ""};
  Resolver resolver;
  resolver.resolve(frame);
  EXPECT_NE(frame.function.find("qsort"), std::string::npos) << frame.function;
}

TEST(Resolver, UnknownModulesAndPositionsStayUnknown) {
  Resolver resolver;
  Frame missing{"/no/such/module.so", 0x1234, "", 0, ""};
  resolver.resolve(missing);
  EXPECT_EQ(missing.line, 0);
  EXPECT_EQ(missing.function, "");
  Frame far{std::filesystem::canonical("/proc/self/exe").string(), 0x7fff'ffff'ffff, "", 0, "kept"};
  resolver.resolve(far);
  EXPECT_EQ(far.line, 0);
  EXPECT_EQ(far.function, "kept");
  Frame text{"/etc/hostname", 1, "", 0, ""};
  resolver.resolve(text);
  EXPECT_EQ(text.line, 0);
}

TEST(Resolver, LeavesKnownLinesAlone) {
  Resolver resolver;
  Frame known{"/no/such/train.py", 3, "train.py", 12, "main"};
  resolver.resolve(known);
  EXPECT_EQ(known.line, 12);
  EXPECT_EQ(known.file, "train.py");
}

TEST(Resolver, FillsAllFramesOfARunWithinItsBounds) {
  const Frame frame = frame_of(inside_a_function());
  lockstep::Run run;
  run.processes.resize(1);
  run.processes[0].sites = {{}, {{frame, frame}}};
  run.stacks.resize(1);
  run.stacks[0].frames = {frame};
  run.requests.resize(1);
  run.requests[0].raised_at.frames = {frame};
  Resolver resolver({.shorten = "", .modules_max = 1, .cached_max = 1});
  resolver.resolve(run);
  EXPECT_GT(run.processes[0].sites[1].frames[1].line, 0);
  EXPECT_GT(run.stacks[0].frames[0].line, 0);
  EXPECT_GT(run.requests[0].raised_at.frames[0].line, 0);
}

}  // namespace
}  // namespace lockstep::symbols
