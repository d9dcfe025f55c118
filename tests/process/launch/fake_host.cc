// A rank host without torch: a warm parent over the real server, whose ranks do as they are told,
// one request a line. {"id": 1, "message": "echo" | "exit" | "orphan" | ...}.
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "harness/history/writer.h"
#include "harness/protocol/fd_channel.h"
#include "harness/protocol/message.h"
#include "harness/protocol/warm_server.h"

namespace {

using lockstep::Result;
using lockstep::protocol::Json;
using lockstep::protocol::LineChannel;

pid_t warm_pid = 0;

// With FAKE_STALL=intermediate the process between warm parent and rank says its pid and waits to
// be killed.
void stall_intermediate() {
  const char* stall = std::getenv("FAKE_STALL");
  if (stall == nullptr || std::strcmp(stall, "intermediate") != 0 || ::getppid() != warm_pid)
    return;
  ::dprintf(STDERR_FILENO, "intermediate %d\n", ::getpid());
  while (true)
    ::pause();
}

// Leaves a process behind that did what daemons do to get away.
pid_t leave_orphan() {
  int ends[2];
  if (::pipe(ends) != 0)
    return -1;
  const pid_t middle = ::fork();
  if (middle == 0) {
    ::setsid();
    const pid_t orphan = ::fork();
    if (orphan == 0) {
      while (true)
        ::pause();
    }
    const bool told = ::write(ends[1], &orphan, sizeof orphan) == sizeof orphan;
    ::_exit(told ? 0 : 1);
  }
  pid_t orphan = -1;
  if (::read(ends[0], &orphan, sizeof orphan) != sizeof orphan)
    return -1;
  ::waitpid(middle, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  return orphan;
}

[[noreturn]] void hang_in_a_wait() {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  while (true)
    never.wait(lock);
}

// Issues all_reduces on group "dp" into the history, as a tap would; the last of them never
// returns.
[[noreturn]] void issue_and_hang(int count) {
  namespace history = lockstep::history;
  history::WriterOptions options;
  options.directory = std::getenv("FAKE_HISTORY");
  history::Writer* writer = history::Writer::open(options);
  if (writer == nullptr)
    std::exit(4);
  writer->set_rank(std::atoi(std::getenv("RANK")), std::atoi(std::getenv("WORLD_SIZE")));
  history::GroupInfo info;
  info.name = "dp";
  info.size = std::atoi(std::getenv("WORLD_SIZE"));
  info.my_rank = std::atoi(std::getenv("RANK"));
  info.from_creation = true;
  const history::GroupHandle dp = writer->define_group(info);
  history::Issue call;
  call.op = history::Op::kAllReduce;
  for (int i = 1; i < count; ++i)
    writer->returned_completed(writer->issue(dp, call));
  writer->issue(dp, call);
  hang_in_a_wait();
}

Json serve(const Json& request, LineChannel& channel) {
  const std::string message = request["message"];
  const std::uint64_t id = request["id"];
  Json answer = lockstep::protocol::ok_answer(id);
  if (message == "echo")
    answer["text"] = request.value("text", "");
  else if (message == "environment")
    answer["value"] = std::string(std::getenv(request.value("name", "").c_str()));
  else if (message == "whoami")
    answer["pids"] = {::getpid(), ::getppid(), ::getpgrp()};
  else if (message == "orphan")
    answer["pid"] = leave_orphan();
  else if (message == "exit")
    std::exit(request.value("status", 0));
  else if (message == "ignore_term")
    std::signal(SIGTERM, SIG_IGN);
  else if (message == "hang")
    hang_in_a_wait();
  else if (message == "issue_and_hang")
    issue_and_hang(request.value("count", 1));
  else if (message == "garbage") [[maybe_unused]]
    const auto written =
        channel.write_line(std::string(request.value("bytes", std::size_t{10}), 'x') + "\n");
  else if (message == "close") {
    ::shutdown(channel.fd(), 2);
    hang_in_a_wait();
  } else if (message == "print") {
    std::printf("%s\n", std::string(request.value("bytes", std::size_t{10}), 'p').c_str());
    std::fflush(stdout);
  }
  return answer;
}

int run_rank(lockstep::protocol::RankStart start) {
  LineChannel channel(std::move(start.conversation));
  while (true) {
    const Result<std::optional<std::string>> line = channel.read_line();
    if (!line || !*line)
      return 0;
    const Result<Json> request = lockstep::protocol::decode_request(**line);
    if (!request)
      return 3;
    if ((*request)["message"] == "bye")
      return 0;
    if (!channel.write_line(lockstep::protocol::encode(serve(*request, channel))))
      return 0;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--bystander") == 0) {
    std::puts("ready");
    std::fflush(stdout);
    while (true)
      ::pause();
  }
  warm_pid = ::getpid();
  ::pthread_atfork(nullptr, nullptr, stall_intermediate);
  return lockstep::protocol::serve_warm(lockstep::protocol::kWarmControlFd, {}, run_rank);
}
