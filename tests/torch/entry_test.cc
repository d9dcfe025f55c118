// Unmodified programs with the tap in them, entered by environment alone as `lockstep run` does.

#include "harness/entry/entry.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "harness/entry/python_torch.h"
#include "harness/entry/tool.h"
#include "harness/history/format.h"
#include "harness/model/call_site.h"
#include "tests/torch/entered.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> operations_of(const Process& process) {
  std::vector<std::string> names;
  for (const Collective& call : process.collectives)
    names.emplace_back(name_of(call.op));
  return names;
}

/// "two_lines.py:10 train_step": the line of the user's by which the call is shown.
std::string line_of(const Process& process, const Collective& call) {
  const Frame* const frame = user_frame(process.sites.at(call.site).frames);
  if (frame == nullptr)
    return "none";
  return std::filesystem::path(frame->file).filename().string() + ":" +
         std::to_string(frame->line) + " " + frame->function;
}

TEST(Entry, AnUnmodifiedPythonProgramIsSeen) {
  const Entered run = run_entered("two_lines.py", 2);
  EXPECT_THAT(run.statuses, ElementsAre(0, 0));
  EXPECT_EQ(run.output, "rank 0 has 8.0\nrank 1 has 8.0\n");
  EXPECT_TRUE(run.unseen.empty());
  const std::string reduce = marked_line("two_lines.py", "reduce") + " train_step";
  const std::string barrier = marked_line("two_lines.py", "barrier") + " main";
  for (const int rank : {0, 1}) {
    const Process& process = run.of_rank(rank);
    EXPECT_THAT(operations_of(process),
                ElementsAre("all_reduce", "all_reduce", "all_reduce", "barrier"));
    EXPECT_EQ(process.world_size, 2);
    ASSERT_EQ(process.groups.size(), 1U);
    EXPECT_TRUE(process.is_complete(0));
    EXPECT_TRUE(process.closed);
    EXPECT_NE(process.capabilities & history::kSeesPythonSites, 0U);
    std::vector<std::string> lines;
    for (const Collective& call : process.collectives)
      lines.push_back(line_of(process, call));
    EXPECT_THAT(lines, ElementsAre(reduce, reduce, reduce, barrier));
    EXPECT_EQ(process.collectives[0].site, process.collectives[2].site);
  }
  const auto key = [&](int rank) {
    const Process& process = run.of_rank(rank);
    return site_key(process, process.collectives.at(0).site);
  };
  EXPECT_EQ(key(0), key(1));
}

TEST(Entry, AStackIsTakenForNoOtherAtItsPlace) {
  const Entered run = run_entered("frames_alike.py", 1);
  EXPECT_THAT(run.statuses, ElementsAre(0)) << run.output;
  std::vector<std::string> callers;
  for (const Collective& call : run.of_rank(0).collectives) {
    const std::vector<Frame>& frames = run.of_rank(0).sites.at(call.site).frames;
    const auto reduce = std::find_if(frames.begin(), frames.end(),
                                     [](const Frame& frame) { return frame.function == "reduce"; });
    ASSERT_LT(std::next(reduce), frames.end());
    callers.push_back(fs::path(std::next(reduce)->file).filename().string() + ":" +
                      std::to_string(std::next(reduce)->line));
  }
  const std::string first = marked_line("frames_alike.py", "first");
  const std::string second = marked_line("frames_alike.py", "second");
  EXPECT_THAT(callers,
              ElementsAre(first, second, first, second, "one.py:2", "two.py:2", "one.py:2"));
}

TEST(Entry, AGroupIsKnownToAMemberThatNeverUsesIt) {
  const Entered run = run_entered("unused_group.py", 2);
  EXPECT_THAT(run.statuses, ElementsAre(0, 0)) << run.output;
  const Process& idle = run.of_rank(1);
  EXPECT_TRUE(idle.collectives.empty());
  std::vector<std::string> groups;
  for (std::uint32_t i = 0; i < idle.groups.size(); ++i) {
    const Group& group = idle.groups[i];
    EXPECT_TRUE(idle.is_complete(i));
    groups.push_back(group.name + " " + std::to_string(group.size) + " " +
                     std::to_string(group.generation));
  }
  EXPECT_THAT(groups, ElementsAre("0 2 0", "1 2 0", "0 2 1", "1 2 1"));
  EXPECT_EQ(run.of_rank(0).groups.size(), 6U);
}

/// What the lines "name: operation operation" of rank `rank` announce.
std::vector<std::string> announced(const std::string& output, int rank, int ranks) {
  std::vector<std::string> lines, operations;
  std::istringstream text(output);
  for (std::string line; std::getline(text, line);)
    lines.push_back(line);
  const std::size_t each = lines.size() / static_cast<std::size_t>(ranks);
  for (std::size_t i = 0; i < each; ++i) {
    const std::string& line = lines[static_cast<std::size_t>(rank) * each + i];
    std::istringstream words(line.substr(line.find(": ") + 2));
    for (std::string word; words >> word;)
      operations.push_back(word);
  }
  return operations;
}

/// The object collectives and the functional ones changed from one of these to another.
std::string any_gather(const std::string& name) {
  return name.rfind("all_gather", 0) == 0 ? "all_gather" : name;
}

TEST(Entry, EveryWayToIssueAnOperationIsSeen) {
  const Entered run = run_entered("all_operations.py", 2);
  ASSERT_THAT(run.statuses, ElementsAre(0, 0)) << run.output;
  for (const int rank : {0, 1}) {
    const Process& process = run.of_rank(rank);
    std::vector<std::string> expected = announced(run.output, rank, 2);
    std::vector<std::string> seen = operations_of(process);
    std::transform(expected.begin(), expected.end(), expected.begin(), any_gather);
    std::transform(seen.begin(), seen.end(), seen.begin(), any_gather);
    // A DDP step ends it: how many broadcasts it makes of parameters and buffers is its own matter.
    const std::vector<std::string> ddp{"all_gather", "broadcast", "all_reduce"};
    ASSERT_GT(seen.size(), expected.size());
    const auto tail = seen.begin() + static_cast<std::ptrdiff_t>(expected.size() - ddp.size());
    std::vector<std::string> of_ddp(tail, seen.end());
    of_ddp.erase(std::unique(of_ddp.begin(), of_ddp.end()), of_ddp.end());
    EXPECT_EQ(of_ddp, ddp);
    expected.resize(expected.size() - ddp.size());
    EXPECT_EQ(std::vector<std::string>(seen.begin(), tail), expected);
    for (std::uint32_t group = 0; group < process.groups.size(); ++group)
      EXPECT_TRUE(process.is_complete(group)) << process.groups[group].name;
    for (const Collective& call : process.collectives) {
      EXPECT_TRUE(call.returned_ns);
      EXPECT_TRUE(call.completed_ns || call.completion_unseen);
      const Frame* const frame = user_frame(process.sites.at(call.site).frames);
      ASSERT_NE(frame, nullptr) << name_of(call.op) << " " << call.seq;
      EXPECT_THAT(frame->file, HasSubstr("all_operations.py"));
    }
  }
}

/// Of Gloo.
bool has_no_future(history::Op op) {
  return history::is_point_to_point(op) || op == history::Op::kReduceScatter ||
         op == history::Op::kReduceScatterSingle;
}

TEST(Entry, CallsOnABackendItselfAreSeen) {
  const Entered run = run_entered("backend_calls.py", 2);
  ASSERT_THAT(run.statuses, ElementsAre(0, 0)) << run.output;
  EXPECT_EQ(run.output, run_plain("backend_calls.py", 2).output);
  for (const int rank : {0, 1}) {
    const Process& process = run.of_rank(rank);
    EXPECT_NE(process.capabilities & history::kSeesBackends, 0U);
    std::vector<std::string> groups, in_first, others;
    for (std::uint32_t i = 0; i < process.groups.size(); ++i) {
      EXPECT_TRUE(process.is_complete(i)) << process.groups[i].name;
      groups.push_back(process.groups[i].name +
                       (process.groups[i].named_by_store ? " by store" : ""));
      EXPECT_EQ(process.groups[i].named_by_store, process.groups[i].store != 0);
    }
    EXPECT_THAT(groups, ElementsAre("a/backend by store", "around by store", "0"));
    for (const Collective& call : process.collectives) {
      EXPECT_TRUE(call.returned_ns);
      (call.group == 0 ? in_first : others)
          .push_back(std::string(name_of(call.op)) + (call.group == 2 ? " of 0" : ""));
      EXPECT_EQ(call.completion_unseen, has_no_future(call.op)) << name_of(call.op) << call.seq;
      EXPECT_THAT(line_of(process, call), HasSubstr("backend_calls.py:"));
    }
    EXPECT_THAT(others, ElementsAre("all_reduce", "all_reduce", "all_reduce of 0"));
    const std::vector<std::string> expected{"all_reduce",
                                            "all_reduce",
                                            "all_reduce_coalesced",
                                            "broadcast",
                                            "reduce",
                                            "all_gather",
                                            "all_gather_into_tensor",
                                            "reduce_scatter",
                                            "reduce_scatter_tensor",
                                            "gather",
                                            "scatter",
                                            "all_to_all_single",
                                            "barrier",
                                            rank == 0 ? "send" : "recv",
                                            "all_reduce"};  // This one raised.
    EXPECT_EQ(in_first, expected);
    EXPECT_TRUE(process.collectives.back().failed);
  }
}

TEST(Entry, OnlyProcessesWithAGroupWriteAHistory) {
  const Entered run = run_entered("children.py", 1);
  EXPECT_THAT(run.statuses, ElementsAre(0)) << run.output;
  for (const char* said : {"from python", "from shell", "from exec"})
    EXPECT_THAT(run.output, HasSubstr(said));
  EXPECT_EQ(run.processes.size(), 2U);
  for (const int rank : {0, 1}) {
    const Process& process = run.of_rank(rank);
    EXPECT_EQ(process.world_size, 2);
    EXPECT_EQ(process.collectives.size(), 4U);
    EXPECT_TRUE(process.is_complete(0));
  }
}

TEST(Entry, TheProgramFindsNothingAroundItChanged) {
  const Entered with = run_entered("surroundings.py", 2);
  const Entered without = run_plain("surroundings.py", 2);
  EXPECT_EQ(with.output, without.output);
  EXPECT_THAT(with.statuses, ElementsAre(5, 5));
  EXPECT_EQ(with.statuses, without.statuses);
  EXPECT_EQ(with.processes.size(), 2U);
}

/// Of the environment; as it was when the test is over.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name))
      before_ = before;
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_{};
};

/// Where a launcher finds no Python but those that a test writes.
class Launcher : public testing::Test {
 protected:
  Launcher() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-launcher-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    fs::current_path(folder_);
  }
  ~Launcher() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }
  void script(const fs::path& path, const std::string& text) const {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << "#!/bin/sh\n" << text << "\n";
    fs::permissions(folder_ / path, fs::perms::owner_all);
  }

  fs::path folder_{};

 private:
  const fs::path before_{fs::current_path()};
};

const std::vector<std::string> kLaunch{"/bin/sh", "-c", "exec $PYTHON train.py", "python3"};

TEST_F(Launcher, IsTakenForTheFirstPythonThatHasATorch) {
  const Result<entry::Torch> torch = entry::torch_of_program(LOCKSTEP_PYTHON);
  ASSERT_TRUE(torch) << torch.error().what;
  const Variable path("PATH", (folder_ / "bin").c_str()), environment("VIRTUAL_ENV", nullptr);
  script("bin/python3", "exit 1");
  EXPECT_THAT(entry::torch_of_command(kLaunch).error().what, HasSubstr("bin/python3 has no torch"));
  script(".venv/bin/python", "exec " LOCKSTEP_PYTHON " \"$@\"");
  const Result<entry::Torch> found = entry::torch_of_command(kLaunch);
  ASSERT_TRUE(found) << found.error().what;
  EXPECT_EQ(found->root, torch->root);
  EXPECT_THAT(entry::torch_of_command({"python3", "train.py"}).error().what,
              HasSubstr("bin/python3 has no torch"))
      << "of a Python that is named nothing is guessed";
}

TEST_F(Launcher, WhatAPythonSaidIsRememberedAsLongAsNothingHasChanged) {
  const Variable cache("XDG_CACHE_HOME", folder_.c_str());
  const std::string root = entry::ask_for_torch(LOCKSTEP_PYTHON).root;
  ASSERT_TRUE(fs::exists(root + "/version.py")) << root;
  const auto file = fs::directory_iterator(folder_ / "lockstep/asked")->path();
  std::ifstream reading(file);
  std::string answer{std::istreambuf_iterator<char>(reading), {}};
  const auto remember = [&] { std::ofstream(file) << answer; };
  answer.replace(0, root.size(), "/elsewhere");
  remember();
  EXPECT_EQ(entry::ask_for_torch(LOCKSTEP_PYTHON).root, "/elsewhere");
  answer.replace(0, answer.find('\n'), "");  // It has none.
  remember();
  EXPECT_EQ(entry::ask_for_torch(LOCKSTEP_PYTHON).root, "");
  answer.insert(answer.find('\n') + 1, "1");  // Of the interpreter, when it was changed.
  remember();
  EXPECT_EQ(entry::ask_for_torch(LOCKSTEP_PYTHON).root, root);
}

TEST_F(Launcher, WhatAVersionManagerStartsIsRememberedForThisVersion) {
  const Variable cache("XDG_CACHE_HOME", folder_.c_str());
  const auto asked = [&] { return fs::exists(folder_ / "asked"); };
  const auto root_of = [&](const std::string& what) {
    script("bin/python3", fmt::format("touch {}/asked\n{}", folder_.string(), what));
    entry::ask_for_torch((folder_ / "bin/python3").string());
    fs::remove(folder_ / "asked");
    return entry::ask_for_torch((folder_ / "bin/python3").string()).root;
  };
  const std::string real = "exec " LOCKSTEP_PYTHON " \"$@\"\n";
  const std::string root = entry::ask_for_torch(LOCKSTEP_PYTHON).root;
  EXPECT_EQ(root_of(real), root);
  EXPECT_TRUE(asked()) << "any script may start another one next time";
  EXPECT_EQ(root_of(real + "exec \"/x/pyenv\" exec \"$program\""), root);
  EXPECT_FALSE(asked());
  const Variable version("PYENV_VERSION", "another");
  EXPECT_EQ(entry::ask_for_torch((folder_ / "bin/python3").string()).root, root);
  EXPECT_TRUE(asked());
}

TEST_F(Launcher, ThatNamesNoTorchIsEnteredWhereThereIsATap) {
  const Result<entry::Torch> torch = entry::torch_of_program(LOCKSTEP_PYTHON);
  ASSERT_TRUE(torch) << torch.error().what;
  const Result<entry::Built> built = entry::build_tap(*torch);
  ASSERT_TRUE(built) << built.error().what;
  const Variable path("PATH", "/nowhere"), environment("VIRTUAL_ENV", nullptr);
  entry::Entry entry = entry::prepare(kLaunch, folder_.string());
  EXPECT_EQ(entry.environment["LOCKSTEP_TAPS"], built->taps);
  EXPECT_THAT(entry.unseen, HasSubstr("only what loads a torch that a tap was built for is seen"));
  EXPECT_EQ(entry::tap_folder(built->taps, torch->library()), fs::path(built->tap).parent_path());
  const Variable cache("XDG_CACHE_HOME", folder_.c_str());
  entry = entry::prepare(kLaunch, folder_.string());
  EXPECT_TRUE(entry.environment.empty());
  EXPECT_THAT(entry.unseen, HasSubstr("lockstep tap build --python PYTHON"));
}

TEST(Entry, OfOursTheTapExportsWhatTheShimCalls) {
  const Result<entry::Torch> torch = entry::torch_of_program(LOCKSTEP_PYTHON);
  ASSERT_TRUE(torch) << torch.error().what;
  const Result<entry::Built> built = entry::build_tap(*torch);
  ASSERT_TRUE(built) << built.error().what;
  const std::string names = entry::run_tool({"nm", "-DC", "--defined-only", built->tap}).output;
  std::vector<std::string> ours;
  std::istringstream lines(names);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("lockstep") != std::string::npos)
      ours.push_back(line.substr(line.rfind(' ') + 1));
  }
  EXPECT_THAT(
      ours, testing::UnorderedElementsAre("lockstep_tap_backend_created", "lockstep_tap_exception",
                                          "lockstep_tap_group_begun", "lockstep_tap_group_created",
                                          "lockstep_tap_leave", "lockstep_tap_python_stack",
                                          "lockstep_tap_thread_begun", "lockstep_tap_world_left"));
}

}  // namespace
}  // namespace lockstep::test
