// The shim in programs that have nothing to do with torch, and in one that loads something by its
// name: it changes nothing, and lets the tap in once, where it belongs.

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "harness/entry/tool.h"
#include "harness/entry/torch.h"
#include "harness/launch/last_words.h"

namespace lockstep::entry {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Shim : public testing::Test {
 protected:
  Shim() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-shim-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    fs::create_directories(folder_ / "torch/lib");
    fs::create_directory(folder_ / "history");
    const std::string sources = LOCKSTEP_SOURCES;
    std::vector<std::string> options{"-O2",           "-shared",     "-fPIC", "-fvisibility=hidden",
                                     "-D_GNU_SOURCE", "-I" + sources};
    for (const char* const part : {"shim.c", "shim_end.c", "shim_devices.c", "shim_rank.c"})
      options.insert(options.end(), {"-x", "c", sources + "/harness/tap/" + part});
    build("shim.so", options);
  }
  ~Shim() override { fs::remove_all(folder_); }

  void build(const std::string& name, std::vector<std::string> options) {
    options.insert(options.begin(), "c++");
    options.insert(options.end(), {"-o", (folder_ / name).string(), "-ldl"});
    const ToolResult built = run_tool(options);
    ASSERT_EQ(built.status, 0) << built.output;
  }
  std::string source(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    std::ofstream(path) << text;
    return path.string();
  }
  /// With `environment` ("NAME=value") and the shim.
  ToolResult run(std::vector<std::string> command, std::vector<std::string> environment = {}) {
    environment.insert(environment.begin(), {"env", "LD_PRELOAD=" + (folder_ / "shim.so").string(),
                                             "LOCKSTEP_HISTORY=" + (folder_ / "history").string(),
                                             "LOCKSTEP_TAPS=" + (folder_ / "taps").string()});
    environment.insert(environment.end(), command.begin(), command.end());
    return run_tool(environment);
  }
  /// A library called like LibTorch's, and a program that loads it and tells its story.
  void build_torch() {
    build("torch/lib/libtorch_cpu.so",
          {"-shared", "-fPIC", "-Wl,-soname,libtorch_cpu.so", source("t.cc", R"(
      #include <cstdio>
      __attribute__((constructor)) static void begin() { std::puts("torch"); std::fflush(stdout); }
    )")});
    fs::create_directory(tap().parent_path());
    build(fs::relative(tap(), folder_), {"-shared", "-fPIC", source("tap.cc", R"(
      #include <cstdio>
      __attribute__((constructor)) static void begin() { std::puts("tap"); std::fflush(stdout); }
    )")});
    build("program", {source("p.cc", R"(
      #include <cstdio>
      #include <dlfcn.h>
      int main(int, char** arguments) {
        for (int i = 0; i < 3; ++i)
          std::puts(dlopen(arguments[1], RTLD_NOW) ? "loaded" : dlerror());
        dlopen("no-such-library.so", RTLD_NOW);
        std::puts(dlerror());
      }
    )")});
  }
  [[nodiscard]] fs::path tap() const {
    return fs::path(tap_folder((folder_ / "taps").string(),
                               (folder_ / "torch/lib/libtorch_cpu.so").string())) /
           "liblockstep_tap.so";
  }
  std::vector<std::string> reasons() {
    std::vector<std::string> texts;
    for (const auto& entry : fs::directory_iterator(folder_ / "history")) {
      std::ifstream file(entry.path());
      texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return texts;
  }

  std::vector<std::string> said_of_devices(const std::string& calls);

  fs::path folder_{};
};

TEST_F(Shim, AShellIsAsItWas) {
  const ToolResult with = run({"bash", "-c", "echo said; ls -d /; exit 3"});
  EXPECT_EQ(with.output, "said\n/\n");
  EXPECT_EQ(with.status, 3);
  EXPECT_THAT(reasons(), ElementsAre());
}

TEST_F(Shim, ALibraryIsStillFoundByTheRunpathOfItsCaller) {
  fs::create_directory(folder_ / "hidden");
  build("hidden/libinner.so", {"-shared", "-fPIC", source("inner.cc", "")});
  build("libouter.so", {"-shared", "-fPIC", "-Wl,-rpath," + (folder_ / "hidden").string(),
                        "-Wl,--enable-new-dtags", source("outer.cc", R"(
      #include <dlfcn.h>
      extern "C" const char* load() { return dlopen("libinner.so", RTLD_NOW) ? "found" : dlerror(); }
    )")});
  build("program", {source("p.cc", R"(
      #include <cstdio>
      extern "C" const char* load();
      int main() { std::puts(load()); }
    )"),
                    (folder_ / "libouter.so").string()});
  EXPECT_EQ(run({(folder_ / "program").string()}).output, "found\n");
}

TEST_F(Shim, TheTapIsLoadedOnceAfterLibTorch) {
  build_torch();
  const std::string library = (folder_ / "torch/lib/libtorch_cpu.so").string();
  const ToolResult result = run({(folder_ / "program").string(), library});
  EXPECT_THAT(result.output, HasSubstr("torch\ntap\nloaded\nloaded\nloaded\nno-such-library.so:"));
  EXPECT_THAT(reasons(), ElementsAre());
}

TEST_F(Shim, WhatIsSaidLastIsKeptWhereTheStderrIsNotOurs) {
  build_torch();
  build("program", {source("p.cc", R"(
      #include <dlfcn.h>
      #include <string>
      #include <unistd.h>
      #include <sys/wait.h>
      int main(int, char** arguments) {
        write(2, "before", 6);
        dlopen(arguments[1], RTLD_NOW);
        const std::string long_text(100'000, 'x');
        write(2, long_text.data(), long_text.size());
        write(1, "not this", 8);
        write(2, "last words", 10);
        if (fork() == 0)
          return write(2, "of a child", 10) == 10 ? 0 : 1;
        wait(nullptr);
      }
    )")});
  const std::string library = (folder_ / "torch/lib/libtorch_cpu.so").string();
  const std::vector<std::string> command{(folder_ / "program").string(), library};
  run(command);
  EXPECT_THAT(reasons(), ElementsAre());
  run(command, {"LOCKSTEP_LAST_WORDS=1"});
  std::vector<std::string> said;
  for (const auto& entry : fs::directory_iterator(folder_ / "history"))
    said.push_back(
        launch::kept_error_tail(folder_ / "history", std::stoi(entry.path().stem().string()))
            .value()
            .text);
  EXPECT_THAT(said, testing::UnorderedElementsAre(std::string(16384 - 10, 'x') + "last words",
                                                  "of a child"));
}

// The program is its own lockstep: it looks for the file of its child, or does not.
TEST_F(Shim, WhoAbortsIsLookedAtFirst) {
  build_torch();
  build("program", {source("p.cc", R"(
      #include <chrono>
      #include <cstdio>
      #include <cstdlib>
      #include <dlfcn.h>
      #include <string>
      #include <sys/wait.h>
      #include <thread>
      #include <unistd.h>
      int main(int, char** arguments) {
        dlopen(arguments[1], RTLD_NOW);
        for (const bool looks : {true, false}) {
          const auto begun = std::chrono::steady_clock::now();
          const pid_t child = fork();
          if (child == 0)
            abort();
          const std::string path = std::getenv("LOCKSTEP_HISTORY") + ("/" + std::to_string(child)) + "." + std::to_string(child) + ".aborts";
          while (looks && unlink(path.c_str()) != 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          int status = 0;
          waitpid(child, &status, 0);
          const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
          std::printf("signal %d %s\n", WTERMSIG(status), took.count() < 1.5 ? "soon" : "late");
        }
      }
    )")});
  const std::string library = (folder_ / "torch/lib/libtorch_cpu.so").string();
  const ToolResult result = run({(folder_ / "program").string(), library});
  EXPECT_THAT(result.output, HasSubstr("signal 6 soon\nsignal 6 late\n"));
  EXPECT_THAT(reasons(), ElementsAre());
}

TEST_F(Shim, AStatusThatALibraryGaveIsToldApart) {
  build_torch();
  build("libpool.so", {"-shared", "-fPIC", source("pool.cc", R"(#include <unistd.h>
                              extern "C" void leave(int status) { _exit(status); })")});
  build("program", {source("p.cc", R"(
      #include <cstdio>
      #include <cstdlib>
      #include <dlfcn.h>
      #include <string>
      #include <sys/wait.h>
      #include <unistd.h>
      int main(int count, char** arguments) {
        if (count == 4) {
          dlopen(arguments[1], RTLD_NOW);
          const int status = std::atoi(arguments[3]);
          if (*arguments[2] != '-')
            ((void (*)(int))dlsym(dlopen(arguments[2], RTLD_NOW), "leave"))(status);
          fork() == 0 ? _exit(status) : exit(status);
        }
        for (const char* status : {"0", "7"}) {
          for (const char* pool : {(const char*)arguments[2], "-"}) {
            const pid_t child = fork();
            if (child == 0)
              execl(arguments[0], arguments[0], arguments[1], pool, status, nullptr);
            int got = 0;
            waitpid(child, &got, 0);
            const std::string path = std::getenv("LOCKSTEP_HISTORY") + ("/" + std::to_string(child)) + ".exits";
            std::printf("%s of %s: %d%s\n", status, *pool == '-' ? "program" : "pool", WEXITSTATUS(got),
                        access(path.c_str(), F_OK) == 0 ? " told" : "");
            std::fflush(stdout);
          }
        }
      }
    )")});
  const std::string library = (folder_ / "torch/lib/libtorch_cpu.so").string();
  const ToolResult result =
      run({(folder_ / "program").string(), library, (folder_ / "libpool.so").string()});
  for (const char* const said :
       {"\n0 of pool: 0\n", "\n0 of program: 0\n", "\n7 of pool: 7 told\n", "\n7 of program: 7\n"})
    EXPECT_THAT(result.output, HasSubstr(said));
}

TEST_F(Shim, WhoSendsASignalThatEndsIsTold) {
  build_torch();
  build("program", {source("p.cc", R"in(
      #include <csignal>
      #include <cstdio>
      #include <cstdlib>
      #include <fstream>
      #include <string>
      #include <sys/wait.h>
      #include <unistd.h>
      int main() {
        for (const int kind : {0, 1, 2, 3}) {
          const pid_t child = fork();
          if (child == 0) {
            setpgid(0, 0);
            if (kind == 2)
              kill(getpid(), SIGTERM);
            for (;;)
              pause();
          }
          setpgid(child, child);
          if (kind == 3)
            kill(child, SIGCONT);
          const int sent = kind == 0 ? kill(child, SIGTERM) : kind == 1 ? killpg(child, SIGTERM) : 0;
          if (kind == 3)
            sigqueue(child, SIGTERM, {});
          int status = 0;
          waitpid(child, &status, 0);
          std::string who, number;
          long long at_ns = 0;
          for (const int name : {child, -child}) {
            std::ifstream file(std::getenv("LOCKSTEP_HISTORY") + ("/" + std::to_string(name)) + ".signalled");
            file >> number >> at_ns;
            std::getline(file, who);
          }
          const bool us = number == "15" && at_ns > 0 && who == " pid " + std::to_string(getpid()) + " (program)";
          std::printf("%d: signal %d %d %s\n", kind, WTERMSIG(status), sent, us ? "by us" : who.c_str());
          std::fflush(stdout);
        }
}
    )in")});
  const ToolResult result = run({(folder_ / "program").string()}, {});
  EXPECT_THAT(result.output, HasSubstr("0: signal 15 0 by us\n1: signal 15 0 by us\n"));
  EXPECT_THAT(result.output, HasSubstr("2: signal 15 0 \n3: signal 15 0 \n"));
}

TEST_F(Shim, IntoAnotherLibTorchTheTapDoesNotGo) {
  build_torch();
  const std::string library = (folder_ / "torch/lib/libtorch_cpu.so").string();
  fs::last_write_time(library, fs::last_write_time(library) + std::chrono::nanoseconds(1));
  const ToolResult result = run({(folder_ / "program").string(), library});
  EXPECT_THAT(result.output, HasSubstr("torch\nloaded\nloaded\nloaded\n"));
  EXPECT_THAT(
      reasons(),
      ElementsAre(library +
                  ": no tap was built for this LibTorch (lockstep tap build --python PYTHON)\n"));
}

TEST_F(Shim, ATapThatCameWithLockstepIsThatOfTheRelease) {
  build_torch();
  const fs::path ready = folder_ / "ready";
  fs::create_directories(ready / "2.15");
  fs::rename(tap(), ready / "2.15/liblockstep_tap.so");
  const std::string library = (folder_ / "torch/lib/libtorch_cpu.so").string();
  const auto loads = [&](const std::string& file, const std::string& text) {
    for (const char* const name : {"version.py", "build-version"})
      fs::remove(folder_ / "torch" / name);
    std::ofstream(folder_ / "torch" / file) << text;
    return run({(folder_ / "program").string(), library}, {"LOCKSTEP_READY_TAPS=" + ready.string()})
        .output;
  };
  const std::string python = "__all__ = ['__version__']\n__version__ = ";
  EXPECT_THAT(loads("version.py", python + "'2.15.1+cu132'\n"), HasSubstr("torch\ntap\nloaded"));
  EXPECT_THAT(loads("build-version", "2.15.0+cpu\n"), HasSubstr("torch\ntap\nloaded"));
  EXPECT_THAT(reasons(), ElementsAre());
  EXPECT_THAT(loads("version.py", python + "'2.14.0'\n"), HasSubstr("torch\nloaded"));
  EXPECT_THAT(loads("version.py", python + "'2.15.0a0+git12'\n"), HasSubstr("torch\nloaded"));
  EXPECT_THAT(loads("no.py", ""), HasSubstr("torch\nloaded"));
  EXPECT_THAT(reasons(), testing::Each(HasSubstr("no tap was built for this LibTorch")));
}

TEST_F(Shim, ATapThatCannotBeLoadedSaysWhy) {
  build_torch();
  std::ofstream(tap()) << "none";
  const std::string library = (folder_ / "torch/lib/libtorch_cpu.so").string();
  const ToolResult result = run({(folder_ / "program").string(), library});
  EXPECT_THAT(result.output, HasSubstr("torch\nloaded\nloaded\nloaded\nno-such-library.so:"));
  ASSERT_EQ(reasons().size(), 1U);
  EXPECT_THAT(reasons()[0], HasSubstr("liblockstep_tap.so: file too short"));
}

TEST_F(Shim, AProgramLinkedToLibTorchIsEnteredBeforeItsMain) {
  build_torch();
  build("linked", {source("l.cc", R"(
      #include <cstdio>
      int main(int count, char** arguments) { std::puts(arguments[count - 1]); return 7; }
    )"),
                   "-Wl,--no-as-needed", "-Wl,-rpath," + (folder_ / "torch/lib").string(),
                   (folder_ / "torch/lib/libtorch_cpu.so").string()});
  const std::string library = (folder_ / "torch/lib/libtorch_cpu.so").string();
  const ToolResult result = run({(folder_ / "linked").string(), "main"});
  EXPECT_EQ(result.output, "torch\ntap\nmain\n");
  EXPECT_EQ(result.status, 7);
}

/// What a program that calls these functions in turn says of its devices; nothing if it is
/// silent.
std::vector<std::string> Shim::said_of_devices(const std::string& calls) {
  build("libcuda.so.1", {"-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source("cuda.cc", R"(
      static bool initialised;
      extern "C" int cuInit(unsigned) { initialised = true; return 0; }
      extern "C" int cuDeviceGetCount(int* count) { *count = 2; return initialised ? 0 : 3; }
    )")});
  build("program", {source("p.cc", R"(
      #include <cstdlib>
      #include <dlfcn.h>
      int main(int, char** arguments) {
        void* const driver = dlopen(arguments[1], RTLD_NOW);
        const auto initialise = [&] {
          reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"))(0);
        };
        const auto choose = [](const char* devices) { setenv("CUDA_VISIBLE_DEVICES", devices, 1); };
        const auto forget = [] { unsetenv("CUDA_VISIBLE_DEVICES"); };
        )" + calls + "}")});
  run({(folder_ / "program").string(), (folder_ / "libcuda.so.1").string()},
      {"CUDA_VISIBLE_DEVICES=0,1"});
  return reasons();
}

TEST_F(Shim, DevicesThatAreChosenTooLateAreTold) {
  const auto said = said_of_devices("initialise(); choose(\"1\");");
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0], testing::EndsWith("\n\"0,1\"\n\"0,1\"\n\"1\"\n"));
}

TEST_F(Shim, TheDevicesInForceAreThoseOfTheInitialisation) {
  const auto said = said_of_devices("choose(\"1\"); initialise(); choose(\"0\"); forget();");
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0], testing::EndsWith("\n\"0,1\"\n\"1\"\nunset\n"));
}

TEST_F(Shim, DevicesThatAreChosenInTimeAreNot) {
  EXPECT_THAT(said_of_devices("forget(); choose(\"1\"); initialise(); choose(\"1\");"),
              ElementsAre());
}

TEST_F(Shim, AChoiceThatIsTakenBackWasForAChild) {
  EXPECT_THAT(said_of_devices("initialise(); choose(\"\"); choose(\"0,1\");"), ElementsAre());
}

TEST_F(Shim, WithoutADriverNothingIsTooLate) {
  EXPECT_THAT(said_of_devices("choose(\"1\"); forget();"), ElementsAre());
}

}  // namespace
}  // namespace lockstep::entry
