// A lockstep in small, for tests that kill it: guard, supervisor, warm parent and two ranks. It
// prints one JSON line with the pids when everything runs, then serves until it is interrupted.
//
//   launch_chain FAKE_HOST DIRECTORY [FLAG...]    flags: orphan, ignore_term, two_cases,
//   body_aborts, stay
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "harness/launch/guard.h"
#include "harness/launch/host_job.h"
#include "harness/protocol/message.h"

namespace {

using namespace lockstep;
using protocol::Json;
using Clock = std::chrono::steady_clock;
constexpr auto kLimit = std::chrono::seconds(20);

struct Setting {
  std::string host{}, directory{};
  std::set<std::string> flags{};
};

Result<Json> ask(launch::HostJob& job, std::size_t host, Json request) {
  request["id"] = 1;
  if (Result<void> sent = job.send(host, protocol::encode(request)); !sent)
    return sent.error();
  const launch::Event event = job.wait(Clock::now() + kLimit);
  if (event.kind != launch::Event::Kind::kLine)
    return Error{Error::Kind::kHost, "no answer: " + event.text + event.status.to_string(), ""};
  return Result<Json>(boost::system::in_place_value, Json::parse(event.text, nullptr, false));
}

void say(const Json& object) {
  std::fputs(protocol::encode(object).c_str(), stdout);
  std::fflush(stdout);
}

int run_case(launch::Supervisor& supervisor, launch::WarmParent& warm, const Setting& setting,
             bool wait) {
  launch::HostJobOptions options;
  options.logs_directory = setting.directory + "/logs";
  std::vector<launch::HostSpec> specs;
  for (int rank = 0; rank < 2; ++rank)
    specs.push_back(
        {.rank = Rank{rank}, .warm = &warm, .environment = {{"RANK", std::to_string(rank)}}});
  Result<std::unique_ptr<launch::HostJob>> job = launch::HostJob::start(supervisor, options, specs);
  if (!job) {
    say({{"error", job.error().what}});
    return 9;
  }
  Json ready{{"job", supervisor.job_id()},
             {"guard", ::getppid()},
             {"supervisor", ::getpid()},
             {"warm", warm.process()->pid()},
             {"ranks", Json::array()}};
  for (const launch::Host& host : (*job)->hosts())
    ready["ranks"].push_back(host.pid);
  if (setting.flags.contains("orphan")) {
    const Result<Json> answer = ask(**job, 0, {{"message", "orphan"}});
    ready["orphan"] = answer ? (*answer)["pid"] : Json();
  }
  if (setting.flags.contains("ignore_term")) [[maybe_unused]]
    const Result<Json> answer = ask(**job, 0, {{"message", "ignore_term"}});
  say(ready);
  std::string why = "the case is over";
  while (wait) {
    const launch::Event event = (*job)->wait(Clock::now() + kLimit);
    if (event.kind == launch::Event::Kind::kEnded) {
      say({{"ended", event.status.to_string()}});
      continue;
    }
    why = event.text;
    break;
  }
  if (wait)
    say({{"stopping", why}});
  const launch::EndReport report = (*job)->end(why, launch::HostJob::How::kTerm);
  Json leftovers = Json::array();
  for (const os::EndedProcess& process : report.leftovers)
    leftovers.push_back(process.id.pid);
  say({{"clean", report.clean()}, {"leftovers", leftovers}});
  return wait ? 7 : 0;
}

int body(launch::Supervisor& supervisor, const Setting& setting) {
  const std::string live = setting.directory + "/live";
  const auto rescue = supervisor.rescue_at_death(live, setting.directory + "/history");
  const auto removed = supervisor.remove_at_end(setting.directory + "/scratch");
  const auto announced = supervisor.announce_run(setting.directory);
  std::filesystem::create_directories(live);
  std::filesystem::create_directories(setting.directory + "/scratch");
  std::ofstream(live + "/rank0.lsh") << "history";
  launch::WarmParent warm(supervisor,
                          {.command = {setting.host}, .log_file = setting.directory + "/warm.log"});
  if (setting.flags.contains("two_cases")) {
    if (const int status = run_case(supervisor, warm, setting, false); status != 0)
      return status;
  }
  if (setting.flags.contains("body_aborts")) {
    [[maybe_unused]] const auto started = warm.ensure_started();
    say({{"job", supervisor.job_id()}, {"guard", ::getppid()}, {"supervisor", ::getpid()}});
    std::abort();
  }
  return run_case(supervisor, warm, setting, true);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3)
    return 125;
  const Setting setting{.host = argv[1], .directory = argv[2], .flags = {argv + 3, argv + argc}};
  return launch::run_guarded(
      [&](launch::Supervisor& supervisor) { return body(supervisor, setting); });
}
