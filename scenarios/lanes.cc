#include "scenarios/lanes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <utility>

#include "harness/base/clock.h"
#include "harness/launch/spawn.h"
#include "scenarios/case_runner.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kEndMayTake{10};

Error errno_error(const char* what) {
  return {Error::Kind::kEnvironment, fmt::format("{}: {}", what, std::strerror(errno)), ""};
}

}  // namespace

Result<void> Lanes::start(const SuiteOptions& options, const history::RunDirectory& suite) {
  std::vector<std::string> command = options.lane_command;
  command.insert(command.end(), {"--lane", suite.path(), suite.id(), suite.cases_live_in()});
  for (std::size_t lane = 0; lane < options.jobs; ++lane) {
    if (auto added = add(command); !added)
      return added;
  }
  return {};
}

Result<void> Lanes::add(const std::vector<std::string>& command) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0)
    return errno_error("a pipe");
  const UniqueFd theirs_in(in[0]);
  UniqueFd to(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0)
    return errno_error("a pipe");
  UniqueFd from(out[0]);
  const UniqueFd theirs_out(out[1]);
  Result<os::ProcessHandle> process = launch::spawn(
      {.command = command, .stdin_fd = theirs_in.get(), .stdout_fd = theirs_out.get()});
  if (!process)
    return process.error();
  supervisor_.keep(*process);
  lanes_.push_back({.process = std::move(*process), .to = std::move(to), .from = std::move(from)});
  return {};
}

Lanes::~Lanes() {
  for (Lane& lane : lanes_) {
    lane.to.reset();
    if (lane.busy)
      lane.process.signal(SIGTERM);
  }
  const auto until = std::chrono::steady_clock::now() + kEndMayTake;
  for (Lane& lane : lanes_) {
    if (!lane.process.wait_ended(until))
      lane.process.signal(SIGKILL);
    (void)lane.process.wait_ended(until + kEndMayTake);
    (void)::waitpid(lane.process.pid(), nullptr, WNOHANG);
    supervisor_.release(lane.process);
  }
}

Result<void> Lanes::give(std::size_t lane, std::size_t index) {
  const std::string line = fmt::format("{}\n", index);
  lanes_[lane].busy = true;
  if (::write(lanes_[lane].to.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()))
    return {};
  return errno_error("a process that runs cases takes no more of them");
}

Result<Played> Lanes::wait() {
  for (;;) {
    if (const std::string why = supervisor_.interrupted(); !why.empty())
      return Error{Error::Kind::kInterrupted, why, ""};
    std::vector<pollfd> all;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].said.find('\n') != std::string::npos)
        return answer(i);
      all.push_back({.fd = lanes_[i].from.get(), .events = POLLIN, .revents = 0});
    }
    all.push_back({.fd = supervisor_.interrupt_fd(), .events = POLLIN, .revents = 0});
    if (supervisor_.guard_fd() >= 0)
      all.push_back({.fd = supervisor_.guard_fd(), .events = POLLIN, .revents = 0});
    (void)::poll(all.data(), all.size(), -1);
    supervisor_.drain_interrupt_fd();
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (all[i].revents == 0)
        continue;
      char text[4096];
      const ssize_t got = ::read(lanes_[i].from.get(), text, sizeof text);
      if (got == 0 && supervisor_.interrupted().empty())
        return Error{Error::Kind::kEnvironment, "a process that runs cases has ended",
                     "look at what it said above"};
      if (got > 0)
        lanes_[i].said.append(text, static_cast<std::size_t>(got));
    }
  }
}

/// "INDEX NANOSECONDS", or "KIND: WHAT", a tab and the help of an error that keeps every case from
/// running.
Result<Played> Lanes::answer(std::size_t lane) {
  Lane& of = lanes_[lane];
  const std::size_t end = of.said.find('\n');
  const std::string line = of.said.substr(0, end);
  of.said.erase(0, end + 1);
  of.busy = false;
  Played played{.lane = lane};
  unsigned long long took = 0;
  int kind = 0, at = 0;
  if (std::sscanf(line.c_str(), "%zu %llu", &played.index, &took) == 2) {
    played.took_ns = took;
    return played;
  }
  if (std::sscanf(line.c_str(), "%d: %n", &kind, &at) == 1 && at > 0) {
    const std::string text = line.substr(static_cast<std::size_t>(at));
    const std::size_t tab = std::min(text.find('\t'), text.size());
    return Error{static_cast<Error::Kind>(kind), text.substr(0, tab),
                 text.substr(std::min(tab + 1, text.size()))};
  }
  return Error{Error::Kind::kEnvironment, fmt::format("a process that runs cases said: {}", line),
               ""};
}

int serve_cases(launch::Supervisor& supervisor, const SuiteOptions& options,
                const std::vector<Case>& cases, history::RunDirectory& suite) {
  CaseRunner runner(supervisor, options, suite);
  for (std::size_t index = 0; std::cin >> index && index < cases.size();) {
    const std::uint64_t begun_ns = now_ns();
    const Result<void> played = runner.play(cases[index]);
    if (!played) {
      const Error& error = played.error();
      fmt::print("{}: {}\t{}\n", static_cast<int>(error.kind), error.what, error.help);
      std::fflush(stdout);
      return 1;
    }
    fmt::print("{} {}\n", index, now_ns() - begun_ns);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace lockstep
