#include "harness/session/job_hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "harness/model/failure.h"
#include "harness/model/process_state.h"
#include "harness/model/ranks_by_text.h"
#include "harness/os/sockets.h"
#include "harness/session/rank_activity.h"

namespace lockstep::session {
namespace {

using history::Heads;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTellEvery{1'000}, kTellEveryWhenStill{250};
constexpr milliseconds kWorthALookAfter{1'000};
constexpr milliseconds kLookCounts{500};  // Of the time between two looks: we may have slept.
constexpr milliseconds kSilentAfter{3'000};
constexpr seconds kClosingMayTake{15};

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

bool one_waits(const Run& live) {
  return std::any_of(live.processes.begin(), live.processes.end(), [&](const Process& process) {
    return process.rank && !has_ended(live, process.pid) &&
           !open_calls(process, UINT64_MAX).empty();
  });
}

}  // namespace

JobHosts::JobHosts(const history::RunDirectory& directory, const Clock& clock,
                   const Notices& notices, history::JournalWriter& journal)
    : directory_(directory),
      clock_(clock),
      notices_(notices),
      journal_(journal),
      due_(clock_() + kTellEvery),
      looked_(clock_()) {
  own_.directory = directory_.path();
  own_.host = host_name();
  own_.addresses = os::own_addresses();
}

void JobHosts::look(LiveJob& job) {
  const TimePoint now = clock_();
  due_ = now + kTellEvery;
  take_heads(job);
  // All ranks of a world that is known are here: there is nobody to tell.
  if (own_.ranks.empty() || own_.world_size <= static_cast<std::int32_t>(own_.ranks.size()))
    return;
  read_others();
  listen(now);
  answer(job);
  if (is_judge())
    judge();
  answer(job);  // What this one asked itself.
  publish();
  if (asked_ || all_stand_still() || !verdict().empty())
    due_ = clock_() + kTellEveryWhenStill;
}

void JobHosts::take_heads(const LiveJob& job) {
  const Run& live = job.history();
  own_.world_size = job.world_size();
  for (const ProcessStart& start : live.starts) {
    if (start.role != Role::kRank || !start.rank)
      continue;
    own_.ranks.insert(*start.rank);
    own_.world_size = std::max(own_.world_size, start.world_size);
    if (!start.meets_at.empty())
      own_.meets_at = start.meets_at;
  }
  own_.still_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<milliseconds>(clock_() - job.last_move()).count());
  const bool still = own_.still_ms >= static_cast<std::uint64_t>(kWorthALookAfter.count());
  own_.waits = still && one_waits(live);
  own_.doing = still ? rank_activity(live, job.living(), ns_of(clock_()),
                                     RankSet::all(own_.world_size).minus(own_.ranks))
                     : std::vector<std::string>();
  one_failed_ = std::any_of(live.ends.begin(), live.ends.end(), [](const ProcessEnd& end) {
    return end.role == Role::kRank && end.failed();
  });
  if (!one_failed_ || !own_.failed.empty())
    return;
  for (const Failure& failure : failures_of(live, group_views(live, kNeverNs))) {
    if (!failure.after_a_peer)
      own_.failed.insert(failure.rank);
  }
}

void JobHosts::read_others() {
  others_ = history::heads_beside(own_.directory);
  std::erase_if(others_, [&](const Heads& other) {
    if (other.ranks.empty() || !history::are_of_one_job(own_, other))
      return true;
    const auto [heard, is_new] = heard_.try_emplace(other.name(), Heard{.beat = other.beat});
    heard->second.counts_on = heard->second.counts_on || heard->second.beat != other.beat;
    return !heard->second.counts_on;
  });
}

/// Time counts in which this one looked, too: whoever slept has not heard anybody.
void JobHosts::listen(TimePoint now) {
  const Duration passed = std::min<Duration>(now - looked_, kTellEvery + kLookCounts);
  looked_ = now;
  for (const Heads& other : others_) {
    Heard& heard = heard_[other.name()];
    if (heard.at_ns == 0 || heard.beat != other.beat || other.ends) {
      heard = {.beat = other.beat, .counts_on = true, .silent = {}, .at_ns = ns_of(now)};
      continue;
    }
    heard.silent += passed;
    if (is_silent(other) && !std::exchange(heard.told, true))
      tell_silence(other, heard);
  }
}

/// Whether it is gone, stopped or cut off from the shared directory does not show here.
void JobHosts::tell_silence(const Heads& other, const Heard& heard) {
  notices_.tell("SILENT", fmt::format("{} has said nothing for {:.1f} s ({})", other.host,
                                      std::chrono::duration<double>(heard.silent).count(),
                                      words(other.ranks)));
  for (const std::string& line : other.doing)
    notices_.detail(fmt::format("{}: {}", other.host, line));
  const bool has_another_reason = std::any_of(others_.begin(), others_.end(),
                                              [](const Heads& one) { return !one.failed.empty(); });
  if (has_another_reason)
    return;  // Whatever others saw of its connections.
  (void)journal_.append(HostSilent{
      .at_ns = ns_of(looked_), .host = other.host, .ranks = other.ranks, .since_ns = heard.at_ns});
}

bool JobHosts::is_silent(const Heads& other) const {
  const auto heard = heard_.find(other.name());
  return heard != heard_.end() && heard->second.silent >= kSilentAfter;
}

/// Each that asks; also this one itself.
void JobHosts::answer(LiveJob& job) {
  std::vector<const Heads*> all{&own_};
  for (const Heads& other : others_)
    all.push_back(&other);
  for (const Heads* const one : all) {
    std::uint64_t& answered = own_.answered[one->name()];
    if (one->question <= answered || one->ends || (one != &own_ && is_silent(*one)))
      continue;
    publish();  // A look takes a while.
    if (one->again)
      job.look_again();
    else
      job.sample(/*before_the_end=*/false);
    note_what_does_not_arrive(job);
    if (!history::write_snapshot(directory_))
      continue;
    answered = one->question;
    take_heads(job);
  }
}

void JobHosts::note_what_does_not_arrive(const LiveJob& job) {
  for (const Process& process : job.history().processes) {
    if (!process.rank || has_ended(job.history(), process.pid))
      continue;
    for (const os::UnacknowledgedBytes& sent : os::unacknowledged(process.pid)) {
      const std::string address = sent.address.substr(0, sent.address.rfind(':'));
      for (const Heads& other : others_) {
        if (std::find(other.addresses.begin(), other.addresses.end(), address) ==
                other.addresses.end() ||
            is_silent(other))
          continue;
        (void)journal_.append(Unacknowledged{.at_ns = ns_of(clock_()),
                                             .rank = process.rank,
                                             .pid = process.pid,
                                             .address = sent.address,
                                             .host = other.host,
                                             .ranks = other.ranks,
                                             .bytes = sent.bytes,
                                             .tries = sent.tries});
      }
    }
  }
}

void JobHosts::publish() {
  ++own_.beat;
  published_ = true;
  // Who cannot write is not heard of.
  (void)history::write_heads(own_);
}

std::string JobHosts::verdict() const {
  std::string first = own_.verdict;
  for (const Heads& other : others_) {
    if (first.empty())
      first = other.verdict;
  }
  return first;
}

void JobHosts::agree(const std::string& verdict) {
  own_.verdict = verdict;
  agreed_ = true;
  if (published_)
    publish();
}

bool JobHosts::all_agree() const {
  return std::all_of(others_.begin(), others_.end(), [&](const Heads& other) {
    return other.ends || is_silent(other) || !other.verdict.empty();
  });
}

RankSet JobHosts::elsewhere() const {
  RankSet ranks;
  for (const Heads& other : others_) {
    for (const Rank rank : other.ranks)
      ranks.insert(rank);
  }
  return ranks;
}

std::vector<std::string> JobHosts::doing() const {
  std::vector<std::string> lines;
  const RankSet unheard = RankSet::all(own_.world_size).minus(own_.ranks).minus(elsewhere());
  for (const Heads& other : others_) {
    for (const std::string& line : other.doing)
      lines.push_back(fmt::format("{}: {}", other.host, line));
  }
  if (!others_.empty() && !unheard.empty())
    lines.push_back(fmt::format("{}: on a host that is not heard of", words(unheard)));
  return lines;
}

void JobHosts::listen_once_more(LiveJob& job) {
  job.read_on();
  take_heads(job);
  if (!one_failed_ || !published_)
    return;
  std::map<std::string, std::uint64_t> before;
  for (const Heads& other : others_)
    before.emplace(other.name(), other.beat);
  const auto is_open = [&](const Heads& other) {
    return !other.ends && !is_silent(other) && before[other.name()] == other.beat;
  };
  const TimePoint end = clock_() + 2 * kSilentAfter;
  while (std::any_of(others_.begin(), others_.end(), is_open) && clock_() < end) {
    std::this_thread::sleep_for(kTellEveryWhenStill);
    read_others();
    listen(clock_());
    publish();
  }
}

void JobHosts::ends() {
  own_.ends = true;
  history::remove_snapshot(own_.directory);
  if (published_)
    publish();
}

std::vector<std::string> JobHosts::all_closed() {
  own_.closed = true;
  if (published_)
    publish();
  if (!published_ || !(agreed_ || one_failed_))
    return {};
  const auto all_are = [&] {
    read_others();
    return std::all_of(others_.begin(), others_.end(),
                       [&](const Heads& other) { return other.closed || is_silent(other); });
  };
  for (const TimePoint end = clock_() + kClosingMayTake; !all_are();) {
    if (clock_() >= end)
      return {};
    std::this_thread::sleep_for(milliseconds(100));
  }
  std::vector<std::string> directories{own_.directory};
  for (const Heads& other : others_) {
    if (other.closed)
      directories.push_back(other.directory);
  }
  return directories;
}

}  // namespace lockstep::session
