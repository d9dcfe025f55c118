// `lockstep clean`: what runs left behind whose lockstep was killed as a whole. It shows what it
// found, then ends it. A process is touched only if it carries the marker of a job, or descends
// from one that does, and the lock on that job's RUN is free: then no lockstep of it lives.
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>

#include "harness/cli/commands.h"
#include "harness/history/run_files.h"
#include "harness/launch/guard.h"
#include "harness/launch/job_file.h"
#include "harness/launch/supervisor.h"
#include "harness/os/job.h"
#include "harness/os/kernel_objects.h"
#include "harness/report/pieces.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{3};
constexpr std::chrono::milliseconds kKillLimit{2'500};
constexpr std::size_t kCommandShown = 60;
constexpr int kLooks = 5;

/// One job that has processes, and what the lock on its RUN says.
struct Job {
  std::string run{};  ///< As its processes name it; empty: they do not.
  std::optional<launch::JobFile> file{};
  std::set<std::int32_t> carriers{};  ///< Of the marker.
};

/// By id. RUN is looked up where the processes see it: they may live in another mount namespace.
void find_jobs(std::map<std::string, Job>& jobs) {
  for (const os::ProcessStat& process : os::read_processes()) {
    const std::int32_t pid = process.id.pid;
    const auto id = os::environment_value(pid, launch::kJobMarker);
    if (!id || pid == ::getpid())
      continue;
    Job& job = jobs[*id];
    job.carriers.insert(pid);
    if (const auto run = os::environment_value(pid, launch::kRunMarker); run && !job.file) {
      job.run = *run;
      job.file = launch::read_job_file(fmt::format("/proc/{}/root{}", pid, *run));
      if (job.file && job.file->id != *id)
        job.file.reset();  // A later run in a directory of that name.
    }
  }
}

/// Who forks and exits again and again may be missed in one look.
std::vector<os::ProcessStat> living(const os::Family& family) {
  std::vector<os::ProcessStat> members;
  for (int look = 0; look < kLooks && members.empty(); ++look) {
    members = os::members_of(family);
    std::erase_if(members, [](const os::ProcessStat& process) { return process.zombie(); });
  }
  return members;
}

double age_s(const os::ProcessId& id) {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) -
         static_cast<double>(id.start_ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

class Clean {
 public:
  Clean(const std::string& only, bool dry_run)
      : only_(only.empty() ? "" : absolute(only)), dry_run_(dry_run) {}

  int run() {
    std::map<std::string, Job> jobs;
    for (int look = 0; look < kLooks; ++look)
      find_jobs(jobs);
    for (const auto& [id, job] : jobs) {
      if (only_.empty() || job.run == only_)
        look_at(id, job);
    }
    for (const history::DeadLive& live : history::dead_live_directories()) {
      if (only_.empty() || live.history.starts_with(only_ + "/"))
        take_back(live);
    }
    if (found_ == 0)
      fmt::print("nothing is left of any run\n");
    else if (dry_run_)
      fmt::print("nothing was touched; `lockstep clean` ends and removes these\n");
    return left_ == 0 ? 0 : 1;
  }

 private:
  void look_at(const std::string& id, const Job& job) {
    const std::string name = fmt::format("job {}", id.substr(0, 8));
    if (!job.file) {
      fmt::print("{}: nothing proves that its lockstep is dead, {} is gone; not touched: pids {}\n",
                 name, job.run.empty() ? "the record of its run" : job.run,
                 fmt::join(job.carriers, " "));
      return;
    }
    if (job.file->held)
      return;
    const os::Family family{.marker = fmt::format("{}={}", launch::kJobMarker, id),
                            .spared = job.file->survivors};
    const std::vector<os::ProcessStat> members = living(family);
    if (members.empty())
      return;
    found_ += members.size();
    fmt::print("{}: its lockstep was killed and left this behind; its run is in {}\n", name,
               job.run);
    for (const os::ProcessStat& process : members)
      fmt::print("  {:>8}  {:<15}  for {}  {}\n", process.id.pid, process.name,
                 report::duration(age_s(process.id)), shown_command(process.id.pid));
    std::fflush(stdout);
    left_ += dry_run_ ? members.size() : end(family, members);
  }

  static std::string shown_command(std::int32_t pid) {
    std::string line = os::command_line(pid);
    if (line.size() > kCommandShown)
      line = line.substr(0, kCommandShown) + "...";
    return line;
  }

  /// Returns how many could not be ended.
  static std::size_t end(const os::Family& family, const std::vector<os::ProcessStat>& members) {
    const Clock::time_point deadline = Clock::now() + kGrace;
    std::vector<os::ProcessHandle> asked;
    for (const os::ProcessStat& process : members) {
      if (auto handle = os::ProcessHandle::open(process.id)) {
        handle->signal(SIGTERM);
        handle->signal(SIGCONT);  // One that was stopped hears nothing else.
        asked.push_back(std::move(*handle));
      }
    }
    for (const os::ProcessHandle& process : asked)
      [[maybe_unused]] const bool in_time = process.wait_ended(deadline);
    const auto killed = os::end_everything(family, Clock::now() + kKillLimit);
    const auto alive = static_cast<std::size_t>(
        std::count_if(killed.begin(), killed.end(), [](const auto& one) { return !one.gone; }));
    fmt::print("  {} ended, {} of them by KILL, {} could not be ended\n", members.size() - alive,
               killed.size() - alive, alive);
    return alive;
  }

  void take_back(const history::DeadLive& live) {
    ++found_;
    fmt::print("{}: history of a run that was killed, to {}\n", live.path, live.history);
    const Result<void> done = dry_run_ ? Result<void>() : history::take_back(live);
    if (!done)
      report_error(done.error());
    left_ += dry_run_ || !done ? 1 : 0;
  }

  static std::string absolute(const std::string& path) {
    std::string whole = std::filesystem::absolute(path).lexically_normal().string();
    while (whole.size() > 1 && whole.back() == '/')
      whole.pop_back();
    return whole;
  }

  std::string only_;
  bool dry_run_;
  std::size_t found_{};
  std::size_t left_{};
};

}  // namespace

int run_clean_command(const std::string& run_directory, bool dry_run) {
  if (!launch::proc_is_ours())
    return report_error({Error::Kind::kEnvironment,
                         "/proc shows the processes of another pid namespace",
                         "mount one of this"});
  return Clean(run_directory, dry_run).run();
}

}  // namespace lockstep::cli
