// Goal: a line is in the loops that the compiler would say. Method: sources as text, lines by
// marker.
#include "harness/symbols/cpp_loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::symbols {
namespace {

using Lines = std::vector<std::int32_t>;

/// Of the line that ends with the comment `// name`.
std::int32_t line_of(const std::string& source, const std::string& name) {
  const std::size_t at = source.find("// " + name + "\n");
  EXPECT_NE(at, std::string::npos) << name;
  return 1 + static_cast<std::int32_t>(std::count(
                 source.begin(), source.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

Lines around(const std::string& source, const std::string& name) {
  Lines lines;
  for (const SourceLoop& loop : CppSource(source).loops_around(line_of(source, name)))
    lines.push_back(loop.line);
  return lines;
}

/// The lines of these markers.
Lines lines(const std::string& source, const std::vector<std::string>& names) {
  Lines result;
  for (const std::string& name : names)
    result.push_back(line_of(source, name));
  return result;
}

const std::string kTraining = R"x(#include <vector>
#define EACH(x) for (auto& x : all) \
  { step(x);
namespace app {
template <class T>
class Trainer : public Base {
 public:
  Trainer() : step_{0}, name_("for {") {}
  void train(int n) const override {
    for (int epoch = 0; epoch < n; ++epoch) {  // epochs
      while (auto batch = loader_[epoch].next()) {  // steps
        /* a comment } with braces {
        */
        if (batch->empty())
          continue;
        else
          step(T{1, 2},
               batch);  // step
        const char* text = R"(no } statement
begins here)" "\"}";
        const auto big = 1'000'000 + '}' + '\'';  // text
      }
      log();  // log
    }
    do {  // tries
      wait();  // wait
    } while (!done());  // asked
    for (;;)  // single
      if (again())
        again(big{  // argument
            1}, 2);  // last
    barrier();  // barrier
    switch (n) {
      case 'a': for (auto x : all) step(x);  // one line
        break;
      default:
        other();  // other
    }
  }
};
}  // namespace app
)x";

TEST(CppLoops, TheLoopsAroundALineOutermostFirst) {
  EXPECT_EQ(around(kTraining, "step"), lines(kTraining, {"epochs", "steps"}));
  EXPECT_EQ(around(kTraining, "text"), lines(kTraining, {"epochs", "steps"}));
  EXPECT_EQ(around(kTraining, "log"), lines(kTraining, {"epochs"}));
  EXPECT_EQ(around(kTraining, "barrier"), Lines{});
  EXPECT_EQ(around(kTraining, "other"), Lines{});
}

TEST(CppLoops, TheLineOfALoopIsInIt) {
  EXPECT_EQ(around(kTraining, "epochs"), lines(kTraining, {"epochs"}));
  EXPECT_EQ(around(kTraining, "one line"), lines(kTraining, {"one line"}));
}

TEST(CppLoops, ADoLoopGoesToItsCondition) {
  EXPECT_EQ(around(kTraining, "wait"), lines(kTraining, {"tries"}));
  EXPECT_EQ(around(kTraining, "asked"), lines(kTraining, {"tries"}));
}

TEST(CppLoops, ABodyWithoutBracesGoesToItsSemicolon) {
  EXPECT_EQ(around(kTraining, "argument"), lines(kTraining, {"single"}));
  EXPECT_EQ(around(kTraining, "last"), lines(kTraining, {"single"}));
}

TEST(CppLoops, ALoopAroundALambdaIsNotAroundItsCalls) {
  const std::string source = R"(void f() {
  for (auto& x : all) {  // outer
    run(a[0], [&](int i) mutable -> void {  // begins
      step(i);  // body
      while (i)  // inner
        step(i);  // twice
    });
    auto [b, c] = pair{
        step(1)};  // initialiser
    struct Local {
      void g() { step(2); }  // member
    };
  }
})";
  EXPECT_EQ(around(source, "begins"), lines(source, {"outer"}));
  EXPECT_EQ(around(source, "body"), Lines{});
  EXPECT_EQ(around(source, "twice"), lines(source, {"inner"}));
  EXPECT_EQ(around(source, "initialiser"), lines(source, {"outer"}));
  EXPECT_EQ(around(source, "member"), Lines{});
}

TEST(CppLoops, NothingIsKnownOfASourceThatDoesNotMatch) {
  const std::string source = R"(void f() {
#if A
  for (auto x : a) {
#else
  for (auto x : b) {
#endif
    step(x);  // step
  }
}
)";
  EXPECT_EQ(around(source, "step"), Lines{});
  EXPECT_EQ(CppSource("}").loops_around(1).size(), 0U);
  EXPECT_EQ(CppSource("for (").loops_around(1).size(), 0U);
  EXPECT_EQ(CppSource(std::string(100'000, '{')).loops_around(1).size(), 0U);
  EXPECT_EQ(CppSource("R\"(").loops_around(1).size(), 0U);
  EXPECT_EQ(CppSource("do x();").loops_around(1).size(), 0U);
}

}  // namespace
}  // namespace lockstep::symbols
