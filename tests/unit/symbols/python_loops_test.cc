// Goal: a line is in the loops that Python would say. Method: sources as text, lines by marker.
#include "harness/symbols/python_loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::symbols {
namespace {

using Lines = std::vector<std::int32_t>;

/// Of the line that ends with the comment `# name`.
std::int32_t line_of(const std::string& source, const std::string& name) {
  const std::size_t at = source.find("# " + name + "\n");
  return 1 + static_cast<std::int32_t>(std::count(
                 source.begin(), source.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

const std::string kTraining = R"(import torch

for module in modules:  # imports
    def train(loader):
        for epoch in range(3):  # epochs
            while True:  # steps
                x = """
no statement begins here
"""
                if x: y = [
  1, 2]  # continued
                step(x)  # step
                call(a, b,
           c)  # argument
            else:
                finish()  # otherwise
            # a comment
  # another one, further left
            log()  # log
        done = 1 + \
 2
        barrier()  # barrier
)";

Lines lines_of(const std::vector<SourceLoop>& loops) {
  Lines lines;
  for (const SourceLoop& loop : loops)
    lines.push_back(loop.line);
  return lines;
}

Lines around(const std::string& name) {
  return lines_of(PythonSource(kTraining).loops_around(line_of(kTraining, name)));
}

TEST(PythonLoops, TheLoopsAroundALineOutermostFirst) {
  const Lines epochs{line_of(kTraining, "epochs")};
  const Lines steps{line_of(kTraining, "epochs"), line_of(kTraining, "steps")};
  EXPECT_EQ(around("step"), steps);
  EXPECT_EQ(around("log"), epochs);
  EXPECT_EQ(around("barrier"), Lines{}) << "a loop around the function is not around its calls";
}

TEST(PythonLoops, TheLineOfALoopIsInIt) {
  EXPECT_EQ(around("epochs"), Lines{line_of(kTraining, "epochs")});
  EXPECT_EQ(around("imports"), Lines{line_of(kTraining, "imports")});
}

TEST(PythonLoops, LinesWithinAStatementAreWhereItBegins) {
  EXPECT_EQ(around("continued"), around("step"));
  EXPECT_EQ(around("argument"), around("step"));
}

TEST(PythonLoops, TheElseOfALoopIsBehindIt) { EXPECT_EQ(around("otherwise"), around("log")); }

TEST(PythonLoops, AnAsyncLoopIsOne) {
  const PythonSource source(
      "async def f():\n  async  for x in y:\n    g(x)\n  async with z:\n    h()\n");
  EXPECT_EQ(lines_of(source.loops_around(3)), Lines{2});
  EXPECT_EQ(lines_of(source.loops_around(5)), Lines{});
}

TEST(PythonLoops, TheVariableOfALoopIsTheFirstOfItsNames) {
  const auto variable = [](const std::string& statement) {
    return PythonSource(statement + "\n  f()\n").loops_around(2).at(0).variable;
  };
  EXPECT_EQ(variable("for epoch in range(3):"), "epoch");
  EXPECT_EQ(variable("for i, (x, y) in enumerate(loader):"), "i");
  EXPECT_EQ(variable("async for (i,x) in y:"), "i");
  EXPECT_EQ(variable("while epoch < 3:"), "");
}

TEST(PythonLoops, WhetherALoopCanBeLeftBeforeItsEnd) {
  const auto runs_out = [](const std::string& source) {
    return PythonSource(source).loops_around(2).at(0).runs_out;
  };
  EXPECT_TRUE(runs_out("for x in y:\n  f(x)\n  g(breaks)\nelse:\n  h()\nreturn 1\n"));
  EXPECT_FALSE(runs_out("for x in y:\n  f(x)\n  if x: break\n"));
  EXPECT_FALSE(runs_out("for x in y:\n  f(x)\n  if x:\n    return\n"));
  EXPECT_FALSE(runs_out("while x:\n  f(x)\n"));
}

TEST(PythonLoops, WhatStandsInAFinally) {
  const PythonSource source(
      "try:\n  f()\nfinally:\n  with x:\n    g()\ndef h():\n  k()\nexcept E:\n  m()\n");
  EXPECT_FALSE(source.in_finally(2));
  EXPECT_TRUE(source.in_finally(5));
  EXPECT_FALSE(source.in_finally(7));
  EXPECT_FALSE(source.in_finally(9));
}

TEST(PythonLoops, WhatIsNoSourceHasNone) {
  EXPECT_EQ(lines_of(PythonSource("").loops_around(1)), Lines{});
  EXPECT_EQ(lines_of(PythonSource("for x in y:\n  z()").loops_around(99)), Lines{});
  EXPECT_EQ(lines_of(PythonSource("'never closed\nfor x in y: (\n  z()").loops_around(-1)),
            Lines{});
  EXPECT_EQ(lines_of(PythonSource("for x in '\\").loops_around(1)), Lines{1});
}

}  // namespace
}  // namespace lockstep::symbols
