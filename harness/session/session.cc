#include "harness/session/session.h"

#include <fmt/format.h>

#include <utility>

#include "harness/history/hosts.h"
#include "harness/model/ranks_by_text.h"
#include "harness/session/job_hosts.h"
#include "harness/session/job_report.h"
#include "harness/symbols/closed_run.h"

namespace lockstep::session {

namespace {

/// "node1: ranks 0,1; node2: ranks 2,3"
std::string words_of_hosts(const Run& run) {
  std::string text;
  for (const std::string& host : run.hosts) {
    RankSet ranks;
    for (const Process& process : run.processes) {
      if (process.rank && process.host == host)
        ranks.insert(*process.rank);
    }
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", host, words(ranks));
  }
  return text;
}

}  // namespace

Session::Session(Plan plan, history::RunDirectory& directory, const WatchOptions& options,
                 const Clock& clock, const Notices& notices)
    : plan_(std::move(plan)),
      directory_(directory),
      options_(options),
      clock_(clock),
      notices_(notices) {}

Result<Report> Session::run(const StartJob& start) {
  if (auto written = directory_.write_plan(plan_); !written)
    return written.error();
  Result<history::JournalWriter> journal = history::JournalWriter::create(directory_.journal());
  if (!journal)
    return journal.error();
  std::optional<JobHosts> hosts;
  if (options_.several_hosts)
    hosts.emplace(directory_, clock_, notices_, *journal);
  if (auto followed = follow(*journal, start, hosts ? &*hosts : nullptr); !followed)
    return followed.error();
  if (auto closed = journal->close(); !closed)
    return closed.error();
  if (auto written = directory_.write_plan(plan_); !written)  // With the size that was seen.
    return written.error();
  symbols::Resolver resolver;
  Result<Run> closed = symbols::close_and_open(directory_, resolver);
  if (!closed)
    return closed.error();
  if (const auto all = hosts ? hosts->all_closed() : std::vector<std::string>(); all.size() > 1) {
    if (Result<Run> whole = history::open_hosts(all)) {
      is_of_all_hosts_ = true;
      notices_.tell("HOSTS", words_of_hosts(*whole));
      return job_report(std::move(*whole));
    }
  }
  return job_report(std::move(*closed));
}

Result<void> Session::follow(history::JournalWriter& journal, const StartJob& start,
                             JobHosts* hosts) {
  history::Follower follower(directory_.live(), directory_.journal(), plan_);
  const auto record = [&](const Acted& act) {
    // A record that cannot be written is seen as a gap by the reader.
    (void)journal.append(act);
  };
  Watch watch(options_, clock_, notices_, record, hosts);
  Result<std::unique_ptr<LiveJob>> started =
      start({journal, follower, [&watch](const Run& live) { return watch.certain_hang(live); }});
  if (!started)
    return started.error();
  LiveJob& job = **started;
  const std::string why_ended = watch.follow(job);
  if (hosts != nullptr && why_ended.empty())
    hosts->listen_once_more(job);
  if (hosts != nullptr)
    hosts->ends();
  tell_leftovers(why_ended.empty() ? job.clear() : job.end(why_ended), notices_);
  plan_.world_size = job.world_size();
  return {};
}

void tell_leftovers(const launch::EndReport& report, const Notices& notices) {
  for (const os::ProcessStat& process : report.spared)
    notices.tell("KEPT",
                 fmt::format("process {} ({}) was left as it is", process.id.pid, process.name));
  for (const os::EndedProcess& process : report.leftovers) {
    const std::string what =
        fmt::format("process {} ({}) was left behind and {}", process.id.pid, process.name,
                    process.gone ? "was ended" : "could not be ended");
    notices.tell("LEFT", what);
  }
}

}  // namespace lockstep::session
