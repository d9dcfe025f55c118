// The mutants do what the table says of them, and the table and the classes are the same list.

#include "fixtures/mutants/mutants.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tests/torch/ranks.h"

namespace lockstep::test {
namespace {

using at::Tensor;
using mutants::Mutant;

// Two parameters of one shape and a buffer; the gradients of rank r are (r + 1) and 10 (r + 1).
struct Pair {
  Tensor a, b, buffer;
  double buffer_at_entry{};

  explicit Pair(int rank)
      : a(at::full({1}, rank + 1.0, at::kDouble).set_requires_grad(true)),
        b(at::full({1}, rank + 2.0, at::kDouble).set_requires_grad(true)),
        buffer(at::full({1}, rank + 0.0, at::kDouble)) {}

  parallel::Module module() {
    parallel::Module view;
    view.parameters = {{"a", a}, {"b", b}};
    view.buffers = [this] { return std::vector<parallel::NamedTensor>{{"buffer", buffer}}; };
    view.forward = [this](const Tensor& input) {
      buffer_at_entry = buffer.item<double>();
      return (a + 10 * b) * input;
    };
    return view;
  }
};

// "a's gradient, b's gradient, buffer at entry, a's value" of one step with the mutant.
std::string one_step(RankContext& context, const std::string& name) {
  Pair pair(context.rank);
  const auto mutant = mutants::make_mutant(name, pair.module(), context.group, {}, {.rank = 1});
  require(mutant != nullptr, "a mutant called " + name);
  pair.buffer.fill_(context.rank);  // As a training forward would, after construction.
  mutant->begin_step(0);
  mutant->forward(at::full({1}, context.rank + 1.0, at::kDouble)).backward();
  std::ostringstream text;
  text << pair.a.grad().item<double>() << " " << pair.b.grad().item<double>() << " "
       << pair.buffer_at_entry << " " << pair.a.item<double>();
  return text.str();
}

std::vector<std::string> steps_of(const std::string& name) {
  return run_ranks(3, [&](RankContext& context) { return one_step(context, name); });
}

TEST(Mutants, ChangeWhatTheirNameSays) {
  // The unmutated numbers: mean of 1, 2, 3 is 2; buffer 0 and value 1 are rank 0's.
  EXPECT_EQ(steps_of("silent_double_forward"), (std::vector<std::string>(3, "2 20 0 1")));
  EXPECT_EQ(steps_of("sum_for_mean"), (std::vector<std::string>(3, "6 60 0 1")));
  EXPECT_EQ(steps_of("divide_by_world_minus_one"), (std::vector<std::string>(3, "3 30 0 1")));
  EXPECT_EQ(steps_of("crossed_gradients"), (std::vector<std::string>(3, "20 2 0 1")));
  EXPECT_EQ(steps_of("broadcast_from_rank_1"), (std::vector<std::string>(3, "2 20 1 1")));
  EXPECT_EQ(steps_of("no_buffer_broadcast"),
            (std::vector<std::string>{"2 20 0 1", "2 20 1 1", "2 20 2 1"}));
  EXPECT_EQ(steps_of("no_initial_broadcast"),
            (std::vector<std::string>{"2 20 0 1", "2 20 0 2", "2 20 0 3"}));
  EXPECT_EQ(steps_of("parameter_outside_buckets"),
            (std::vector<std::string>{"1 20 0 1", "2 20 0 1", "3 20 0 1"}));
}

TEST(Mutants, EveryRowOfTheTableCanBeMadeAndNothingElse) {
  for (const Mutant& mutant : mutants::kTable) {
    run_ranks(1, [&](RankContext& context) -> std::string {
      Pair pair(0);
      require(mutants::make_mutant(mutant.name, pair.module(), context.group, {}, {.rank = 7}) !=
                  nullptr,
              std::string(mutant.name) + " can be made");
      require(
          mutants::make_mutant("no_such_mutant", pair.module(), context.group, {}, {}) == nullptr,
          "an unknown name gives nothing");
      return "";
    });
    EXPECT_EQ(mutants::find(mutant.name), &mutant) << "the name occurs twice: " << mutant.name;
  }
}

TEST(Mutants, EverySiteStandsOnExactlyOneLine) {
  std::map<std::string, int> markers;
  for (const char* name : {"mutants.cc", "reductions.cc"}) {
    std::ifstream source(std::string(LOCKSTEP_SOURCE_DIR) + "/fixtures/mutants/" + name);
    ASSERT_TRUE(source) << name;
    for (std::string line; std::getline(source, line);) {
      const auto at = line.find("// SITE: ");
      if (at != std::string::npos)
        ++markers[line.substr(at + 9)];
    }
  }
  std::map<std::string, int> wanted;
  for (const Mutant& mutant : mutants::kTable) {
    if (!mutant.site.empty())
      wanted[std::string(mutant.site)] = 1;
  }
  EXPECT_EQ(markers, wanted);
}

}  // namespace
}  // namespace lockstep::test
