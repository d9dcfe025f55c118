// The host programs from outside: the conversation, its typed errors, where an exception was
// thrown, and an end that leaves no process behind.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>

#include "harness/history/tensor_file.h"
#include "harness/protocol/message.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;
using protocol::Json;

class HostProcess {
 public:
  explicit HostProcess(const char* program) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::fcntl(ends[1], F_SETFD, 0);
      ::execl(program, program, "--conversation", std::to_string(ends[1]).c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    socket_ = ends[0];
  }
  ~HostProcess() {
    ::close(socket_);
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

  void send(Json request) {
    request["id"] = ++id_;
    const std::string line = protocol::encode(request);
    EXPECT_EQ(::send(socket_, line.data(), line.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(line.size()));
  }
  protocol::Answer receive() {
    std::vector<std::string> lines;
    while (lines.empty()) {
      pollfd ready{socket_, POLLIN, 0};
      char bytes[65536];
      const ssize_t got =
          ::poll(&ready, 1, 20'000) == 1 ? ::recv(socket_, bytes, sizeof bytes, 0) : -1;
      if (got <= 0) {
        ADD_FAILURE() << "no answer to request " << id_;
        return {};
      }
      EXPECT_TRUE(buffer_.append({bytes, static_cast<std::size_t>(got)}, lines));
    }
    const auto answer = protocol::decode_answer(lines.front(), id_);
    EXPECT_TRUE(answer) << answer.error().what;
    return answer ? *answer : protocol::Answer{};
  }
  protocol::Answer ask(Json request) {
    send(std::move(request));
    return receive();
  }
  /// The wait status; waits for the end at most as long as the conversation would.
  int end() {
    int status = -1;
    char byte = 0;
    pollfd gone{socket_, POLLIN, 0};
    EXPECT_EQ(::poll(&gone, 1, 20'000), 1);
    EXPECT_EQ(::recv(socket_, &byte, 1, 0), 0);
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  pid_t pid_{};
  int socket_{};
  std::uint64_t id_{};
  protocol::LineBuffer buffer_{};
};

class HostTest : public testing::Test {
 protected:
  HostTest() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-host-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  ~HostTest() override { fs::remove_all(directory_); }

  Json init(int rank, int world) const {
    return {{"message", "init"},
            {"rank", rank},
            {"world", world},
            {"backend", "gloo"},
            {"device", "cpu"},
            {"dtype", "float64"},
            {"seed", 3},
            {"timeout_s", 20},
            {"rendezvous", (directory_ / "rendezvous").string()}};
  }
  Json step(int number) const {
    return {{"message", "step"},
            {"step", number},
            {"batch", (directory_ / "batch").string()},
            {"out", (directory_ / "out").string()},
            {"sync", true},
            {"grad", true},
            {"train", true},
            {"backward", true},
            {"zero_grad", true},
            {"optimize", true},
            {"loss", "mean"},
            {"forwards", 1}};
  }
  void write_batch() const {
    const std::vector<double> x(12, 0.5), y(12, 1.0);
    ASSERT_TRUE(history::write_tensors((directory_ / "batch").string(),
                                       {history::make_tensor("x", "F64", {3, 4}, x),
                                        history::make_tensor("y", "F64", {3, 4}, y)}));
  }

  fs::path directory_{};
};

using Outcome = protocol::Answer::Outcome;

TEST_F(HostTest, AnswersTheConversationAndEndsWithZero) {
  HostProcess host(LOCKSTEP_RANK_HOST);
  write_batch();
  const auto hello = host.ask({{"message", "hello"}, {"protocol", 1}});
  ASSERT_EQ(hello.outcome, Outcome::kOk) << hello.text;
  EXPECT_EQ(hello.fields["language"], "c++");
  ASSERT_EQ(host.ask(init(0, 1)).outcome, Outcome::kOk);
  const auto model = host.ask({{"message", "model"}, {"name", "ema"}, {"file", nullptr}});
  ASSERT_EQ(model.outcome, Outcome::kOk) << model.text;
  EXPECT_EQ(model.fields["parameters"][0]["name"], "weight");
  EXPECT_EQ(model.fields["buffers"][0]["name"], "factor");
  EXPECT_EQ(model.fields["x"], Json({4}));
  const auto wrap = host.ask(
      {{"message", "wrap"}, {"implementation", "ddp"}, {"options", {{"optimizer", "adam"}}}});
  ASSERT_EQ(wrap.outcome, Outcome::kOk) << wrap.text;
  EXPECT_EQ(wrap.fields["contract"]["gradient"], "mean_of_rank_means");
  EXPECT_EQ(wrap.fields["contract"].count("statistics"), 0U) << "what is not declared is not told";
  ASSERT_EQ(host.ask(step(0)).outcome, Outcome::kOk);
  auto out = history::TensorFile::open((directory_ / "out").string());
  ASSERT_TRUE(out);
  for (const char* name :
       {"loss", "output", "forward_entry/0/buffer/factor", "after_forward/0/buffer/factor"})
    EXPECT_NE(out->find(name), nullptr) << name;
  const auto state = host.ask({{"message", "state"},
                               {"which", {"params", "grads", "buffers", "optimizer"}},
                               {"out", (directory_ / "state").string()}});
  ASSERT_EQ(state.outcome, Outcome::kOk) << state.text;
  auto values = history::TensorFile::open((directory_ / "state").string());
  ASSERT_TRUE(values);
  for (const char* name :
       {"param/weight", "grad/weight", "buffer/factor", "optimizer/weight/exp_avg"})
    EXPECT_NE(values->find(name), nullptr) << name;
  EXPECT_EQ(host.ask({{"message", "eval"},
                      {"batch", (directory_ / "batch").string()},
                      {"out", (directory_ / "evaluated").string()}})
                .outcome,
            Outcome::kOk);
  EXPECT_EQ(host.ask({{"message", "bye"}}).outcome, Outcome::kOk);
  EXPECT_EQ(host.end(), 0);
}

TEST_F(HostTest, AnEpochNeedsNeitherModelNorGroup) {
  const auto number = [](const char* name, double value) {
    const std::vector<double> values{value};
    return history::make_tensor(name, "I64", {1}, values);
  };
  const std::string dataset = (directory_ / "dataset").string();
  ASSERT_TRUE(history::write_tensors(dataset,
                                     {number("dataset/length", 10), number("dataset/batch_size", 3),
                                      number("dataset/batches_max", 100)}));
  const auto epoch = [&](const char* sampler, const char* file) {
    return Json{{"message", "epoch"},
                {"sampler", sampler},
                {"dataset", dataset},
                {"epoch", 0},
                {"rank", 1},
                {"world", 3},
                {"seed", 0},
                {"options", {{"drop_last", false}}},
                {"out", (directory_ / file).string()}};
  };
  HostProcess host(LOCKSTEP_RANK_HOST);
  const protocol::Answer answer = host.ask(epoch("distributed", "epoch"));
  ASSERT_EQ(answer.outcome, Outcome::kOk) << answer.text;
  EXPECT_EQ(answer.fields["contract"]["order"], "shuffled");
  EXPECT_EQ(answer.fields["contract"]["remainder"], "pad");
  auto out = history::TensorFile::open((directory_ / "epoch").string());
  ASSERT_TRUE(out);
  const auto values = [&](const char* name) { return out->read(*out->find(name))->values; };
  EXPECT_EQ(values("sampler/indices"), (std::vector<double>{1, 3, 8, 4}));  // Python's.
  EXPECT_EQ(values("sampler/batch_sizes"), (std::vector<double>{3, 1}));
  EXPECT_EQ(values("sampler/length"), (std::vector<double>{2}));
  // A dataset is loaded once: the sampler of another needs another file.
  fs::copy_file(dataset, dataset + "2");
  Json other = epoch("no such", "other");
  other["dataset"] = dataset + "2";
  EXPECT_EQ(host.ask(other).outcome, Outcome::kUnsupported);
  other["sampler"] = "distributed_bucket";  // Without boundaries.
  EXPECT_EQ(host.ask(other).outcome, Outcome::kFailed);
  EXPECT_EQ(host.ask({{"message", "bye"}}).outcome, Outcome::kOk);
  EXPECT_EQ(host.end(), 0);
}

TEST_F(HostTest, ErrorsAreTyped) {
  HostProcess host(LOCKSTEP_RANK_HOST);
  EXPECT_EQ(host.ask({{"message", "no such"}}).outcome, Outcome::kUnsupported);
  EXPECT_EQ(host.ask({{"message", "hello"}, {"protocol", 99}}).outcome, Outcome::kFailed);
  EXPECT_EQ(host.ask({{"message", "wrap"}}).outcome, Outcome::kFailed);
  Json cuda = init(0, 1);
  cuda["device"] = "cuda";
  EXPECT_EQ(host.ask(cuda).outcome, Outcome::kUnsupported);
  ASSERT_EQ(host.ask(init(0, 1)).outcome, Outcome::kOk);
  EXPECT_EQ(host.ask({{"message", "model"}, {"name", "no such"}}).outcome, Outcome::kUnsupported);
  EXPECT_EQ(host.ask({{"message", "model"}, {"name", "mlp"}, {"file", "/no/such"}}).outcome,
            Outcome::kFailed);
  ASSERT_EQ(host.ask({{"message", "model"}, {"name", "mlp"}}).outcome, Outcome::kOk);
  EXPECT_EQ(host.ask({{"message", "wrap"}, {"implementation", "mutant/no such"}}).outcome,
            Outcome::kUnsupported);
  EXPECT_EQ(host.ask({{"message", "wrap"},
                      {"implementation", "ddp"},
                      {"options", {{"broadcast_buffers", 3}}}})
                .outcome,
            Outcome::kFailed);
}

TEST_F(HostTest, ARefusalIsNoFailure) {
  write_batch();
  HostProcess hosts[] = {HostProcess(LOCKSTEP_RANK_HOST), HostProcess(LOCKSTEP_RANK_HOST)};
  const auto all = [&](auto request, Outcome expected) {
    for (int rank = 0; rank < 2; ++rank)
      hosts[rank].send(request(rank));
    for (HostProcess& host : hosts) {
      const auto answer = host.receive();
      EXPECT_EQ(answer.outcome, expected) << answer.text;
    }
  };
  all([&](int rank) { return init(rank, 2); }, Outcome::kOk);
  all([&](int) { return Json{{"message", "model"}, {"name", "ema"}}; }, Outcome::kOk);
  all([&](int) { return Json{{"message", "wrap"}, {"implementation", "ddp"}}; }, Outcome::kOk);
  Json twice = step(0);
  twice["forwards"] = 2;
  all(
      [&](int rank) {
        twice["out"] = (directory_ / std::to_string(rank)).string();
        return twice;
      },
      Outcome::kRefused);
}

TEST_F(HostTest, AFailureTellsWhereItWasThrown) {
  HostProcess host(LOCKSTEP_RANK_HOST);
  write_batch();
  ASSERT_EQ(host.ask(init(0, 1)).outcome, Outcome::kOk);
  ASSERT_EQ(host.ask({{"message", "model"}, {"name", "ema"}}).outcome, Outcome::kOk);
  ASSERT_EQ(
      host.ask({{"message", "wrap"}, {"implementation", "mutant/raises_in_backward"}}).outcome,
      Outcome::kOk);
  const auto raised = host.ask(step(0));
  EXPECT_EQ(raised.outcome, Outcome::kFailed);
  EXPECT_EQ(raised.text, "gradient of a bucket is not finite");
  const Json& frames = raised.fields["raised_at"];
  ASSERT_GT(frames.size(), 3U);
  // Thrown in the program itself, under the Reducer and the engine of libtorch.
  EXPECT_EQ(fs::path(frames[0]["module"].get<std::string>()).filename(), "lockstep_rank_host");
  EXPECT_GT(frames[0]["offset"].get<std::uint64_t>(), 0U);
  bool through_torch = false;
  for (const Json& frame : frames)
    through_torch |= fs::path(frame["module"].get<std::string>()).filename() == "libtorch_cpu.so";
  EXPECT_TRUE(through_torch);
}

TEST_F(HostTest, FaultsHappenWhenTheyWereAskedFor) {
  write_batch();
  {
    HostProcess host(LOCKSTEP_RANK_HOST);
    EXPECT_EQ(
        host.ask({{"message", "fault"}, {"kind", "exit"}, {"at", "now"}, {"status", 7}}).outcome,
        Outcome::kOk);
    const int status = host.end();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  }
  HostProcess host(LOCKSTEP_RANK_HOST);
  ASSERT_EQ(host.ask(init(0, 1)).outcome, Outcome::kOk);
  ASSERT_EQ(host.ask({{"message", "model"}, {"name", "ema"}}).outcome, Outcome::kOk);
  ASSERT_EQ(host.ask({{"message", "wrap"}, {"implementation", "ddp"}}).outcome, Outcome::kOk);
  ASSERT_EQ(host.ask({{"message", "fault"}, {"kind", "kill"}, {"at", "backward"}}).outcome,
            Outcome::kOk);
  host.send(step(0));
  const int status = host.end();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST_F(HostTest, AConversationThatEndsWithoutByeIsAnError) {
  HostProcess host(LOCKSTEP_RANK_HOST);
  host.send({{"message", ""}});
  const int status = host.end();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

TEST_F(HostTest, TheReferenceSumsWeightedRowsOfForwards) {
  HostProcess host(LOCKSTEP_REFERENCE_HOST);
  write_batch();
  ASSERT_EQ(host.ask({{"message", "hello"}, {"protocol", 1}}).outcome, Outcome::kOk);
  ASSERT_EQ(host.ask(init(0, 1)).outcome, Outcome::kOk);
  ASSERT_EQ(host.ask({{"message", "model"}, {"name", "ema"}}).outcome, Outcome::kOk);
  const std::string batch = (directory_ / "batch").string();
  const auto answer =
      host.ask({{"message", "reference"},
                {"out", (directory_ / "out").string()},
                {"dtype", "float64"},
                {"train", true},
                {"forwards",
                 {{{"parts", {{{"batch", batch}, {"rows", {0, 2}}, {"weights", {1.0, 3.0}}}}}},
                  {{"parts",
                    {{{"batch", batch}, {"rows", {1}}, {"weights", {2.0}}},
                     {{"batch", batch}, {"rows", {0, 2}}, {"weights", {2.0}}}}},
                   {"buffers_after", 0}}}}});
  ASSERT_EQ(answer.outcome, Outcome::kOk) << answer.text;
  auto out = history::TensorFile::open((directory_ / "out").string());
  ASSERT_TRUE(out);
  // x = 1/2 and y = 1 everywhere; each forward brings the factor half-way to x. d/dw = sum of
  // weights * x * y * factor.
  const auto first = out->read(*out->find("after_forward/0/buffer/factor"));
  const auto second = out->read(*out->find("after_forward/1/buffer/factor"));
  ASSERT_TRUE(first && second);
  const double before = first->values.front();
  const double after = second->values.front();
  EXPECT_DOUBLE_EQ(after, (before + 0.5) / 2);
  const auto gradient = out->read(*out->find("grad/weight"));
  ASSERT_TRUE(gradient);
  for (const double value : gradient->values)
    EXPECT_NEAR(value, 4 * 0.5 * before + 6 * 0.5 * after, 1e-12);
  EXPECT_EQ(host.ask({{"message", "wrap"}, {"implementation", "ddp"}}).outcome,
            Outcome::kUnsupported);
}

// Statistics are those of all parts together; a rank's rows are told apart, however they came.
TEST_F(HostTest, TheReferenceGivesNormalisedRowsByRankInTheOrderOfTheirBatch) {
  HostProcess host(LOCKSTEP_REFERENCE_HOST);
  const std::string batch = (directory_ / "rows").string();
  ASSERT_TRUE(history::write_tensors(
      batch, {history::make_tensor("x", "F64", {3, 4},
                                   std::vector<double>{1, 2, 3, 4, 0, 7, 1, 5, 2, 2, 9, 1}),
              history::make_tensor("y", "F64", {3, 4}, std::vector<double>(12, 0.5))}));
  ASSERT_EQ(host.ask({{"message", "hello"}, {"protocol", 1}}).outcome, Outcome::kOk);
  ASSERT_EQ(host.ask(init(0, 1)).outcome, Outcome::kOk);
  ASSERT_EQ(host.ask({{"message", "model"}, {"name", "bn_rows"}}).outcome, Outcome::kOk);
  const auto normalised = [&](const std::vector<int>& order) {
    const std::string out = (directory_ / "out").string();
    const protocol::Json all{{"batch", batch}, {"rank", 1}, {"rows", order}, {"weights", {1.0}}};
    const protocol::Json one{
        {"batch", batch}, {"rank", 0}, {"rows", std::vector<int>{1}}, {"weights", {1.0}}};
    const protocol::Json forward{{"parts", protocol::Json::array({all, one})}};
    const auto answer = host.ask({{"message", "reference"},
                                  {"out", out},
                                  {"dtype", "float64"},
                                  {"forwards", protocol::Json::array({forward})}});
    EXPECT_EQ(answer.outcome, Outcome::kOk) << answer.text;
    auto file = history::TensorFile::open(out);
    std::vector<std::vector<double>> ranks;
    for (const char* name : {"rank/0/after_forward/0/norm/bn", "rank/1/after_forward/0/norm/bn"})
      ranks.push_back(file->read(*file->find(name))->values);
    return ranks;
  };
  const auto in_order = normalised({0, 1, 2});
  const auto permuted = normalised({2, 0, 1});
  ASSERT_EQ(in_order[0].size(), 4U);
  ASSERT_EQ(in_order[1].size(), 12U);
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_NEAR(in_order[1][i], permuted[1][i], 1e-12);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(in_order[0][i], in_order[1][4 + i], 1e-12) << "the same row";
}

}  // namespace
}  // namespace lockstep::test
