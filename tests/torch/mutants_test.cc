// The mutants do what the table says of them, and the table and the classes are the same list.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "fixtures/mutants/table.h"
#include "fixtures/rank_host/implementations.h"
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
  const auto mutant =
      host::make_implementation("mutant/" + name, {pair.module(), context.group, {{"rank", 1}}});
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
  const std::vector<std::string> served = host::implementation_names();
  for (const Mutant* mutant : mutants::all()) {
    EXPECT_EQ(mutants::find(mutant->name), mutant) << "the name occurs twice: " << mutant->name;
    const std::string name = "mutant/" + std::string(mutant->name);
    if (std::find(served.begin(), served.end(), name) == served.end())
      continue;  // Not a wrapper.
    run_ranks(1, [&](RankContext& context) -> std::string {
      Pair pair(0);
      host::make_implementation(name, {pair.module(), context.group, {{"rank", 7}}});
      bool thrown = false;
      try {
        host::make_implementation("mutant/no_such",
                                  {pair.module(), context.group, host::Json::object()});
      } catch (const host::Unsupported&) {
        thrown = true;
      }
      require(thrown, "an unknown name is refused");
      return "";
    });
  }
}

TEST(Mutants, EverySiteStandsOnExactlyOneLine) {
  std::map<std::string, int> markers;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(LOCKSTEP_SOURCE_DIR) +
                                                               "/fixtures/mutants")) {
    std::ifstream source(entry.path());
    ASSERT_TRUE(source) << entry.path();
    for (std::string line; std::getline(source, line);) {
      const auto at = line.find("// SITE: ");
      if (at != std::string::npos)
        ++markers[line.substr(at + 9)];
    }
  }
  std::map<std::string, int> wanted;
  for (const Mutant* mutant : mutants::all()) {
    if (!mutant->site.empty())
      wanted[std::string(mutant->site)] = 1;
  }
  EXPECT_EQ(markers, wanted);
}

}  // namespace
}  // namespace lockstep::test
