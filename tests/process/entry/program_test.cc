// What the words of a command are taken for.

#include "harness/entry/program.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "harness/entry/tool.h"

namespace lockstep::entry {
namespace {

namespace fs = std::filesystem;

/// A folder that PATH begins with.
class Programs : public testing::Test {
 protected:
  Programs() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-entry-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    ::setenv("PATH", (folder_.string() + ":" + path_).c_str(), 1);
  }
  ~Programs() override {
    ::setenv("PATH", path_.c_str(), 1);
    fs::remove_all(folder_);
  }

  std::string write(const std::string& name, const std::string& text, int mode = 0755) {
    std::string path = (folder_ / name).string();
    std::ofstream(path) << text;
    ::chmod(path.c_str(), static_cast<mode_t>(mode));
    return path;
  }
  /// Compiled from one line of C++.
  std::string compile(const std::string& name, std::vector<std::string> options) {
    const std::string source = write(name + ".cc", "int main() {}\n", 0644);
    std::string path = (folder_ / name).string();
    options.insert(options.begin(), "c++");
    options.insert(options.end(), {source, "-o", path});
    const ToolResult built = run_tool(options);
    EXPECT_EQ(built.status, 0) << built.output;
    return path;
  }
  std::string python_of(const std::string& word) {
    const auto program = program_of(word);
    return program ? program->python : "not a program";
  }

  fs::path folder_{};

 private:
  const std::string path_{std::getenv("PATH")};
};

TEST_F(Programs, APythonIsKnownByItsName) {
  const std::string python = write("python3.12", "");
  EXPECT_EQ(python_of("python3.12"), python);
  EXPECT_EQ(python_of(python), python);
  write("python-config", "");
  EXPECT_EQ(python_of("python-config"), "");
}

TEST_F(Programs, AScriptHasThePythonThatItNames) {
  const std::string python = write("python3", "");
  const std::string other = write("python3.11", "");
  EXPECT_EQ(python_of(write("a", "#!" + other + "\nimport torch\n")), other);
  EXPECT_EQ(python_of(write("b", "#!/usr/bin/env python3\n")), python);
  EXPECT_EQ(python_of(write("c", "#!/usr/bin/env -S python3 -u\n")), python);
  // What installers write where the path is too long for a first line.
  EXPECT_EQ(python_of(write("d", "#!/bin/sh\n'''exec' \"" + other + "\" \"$0\" \"$@\"\n' '''\n")),
            other);
  EXPECT_EQ(python_of(write("e", "#!/bin/bash\nset -e\ncd /tmp && python3 train.py\n")), python);
  EXPECT_EQ(python_of(write("f", "#!/bin/bash\n./train\n")), "");
}

TEST_F(Programs, WhatCannotBeStartedIsNoProgram) {
  EXPECT_FALSE(program_of("no-such-program"));
  EXPECT_FALSE(program_of(write("data.csv", "python3", 0644)));
  EXPECT_FALSE(program_of(folder_.string()));
}

TEST_F(Programs, WhatCannotBeEnteredSaysWhy) {
  const auto obstacle = [](const std::string& path) {
    const auto program = program_of(path);
    return program ? program->obstacle : "not a program";
  };
  const std::string plain = compile("plain", {});
  EXPECT_EQ(obstacle(plain), "");
  EXPECT_TRUE(program_of(plain)->empty());
  const std::string fixed = compile("fixed", {"-static"});
  EXPECT_EQ(obstacle(fixed), fixed + " is linked statically");
  ::chmod(plain.c_str(), 04755);
  EXPECT_EQ(obstacle(plain), plain + " is setuid or setgid");
  const std::string checked = compile("checked", {"-fsanitize=address"});
  EXPECT_EQ(obstacle(checked).rfind(checked + " is built with a sanitizer", 0), 0U);
}

}  // namespace
}  // namespace lockstep::entry
