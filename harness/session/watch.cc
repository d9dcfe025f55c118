#include "harness/session/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checkers/exit/stuck_at_exit.h"
#include "checkers/hang/given_twice.h"
#include "checkers/hang/rendezvous.h"
#include "checkers/watch/first_divergence.h"
#include "checkers/worlds.h"
#include "harness/model/group_view.h"
#include "harness/session/job_hosts.h"
#include "harness/session/rank_activity.h"

namespace lockstep::session {
namespace {

using Kind = launch::RunEvent::Kind;

constexpr std::chrono::milliseconds kLookAtJoiningAfter{2'000};  // Of the failure of a rank.
constexpr std::chrono::seconds kLookAtValuesEvery{1};
constexpr std::chrono::seconds kHostsMayTake{5};   // To write down that the job is ended.
constexpr std::chrono::seconds kStartMayTake{60};  // Imports, downloads: nothing is recorded yet.

Duration limit_of(double seconds) {
  return seconds > 0 ? std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds))
                     : Duration::max();
}

/// Before that its ranks import, those of its next training, too, or it has none: that nothing is
/// seen of them is no stall.
bool has_a_group(const Run& run) {
  return std::any_of(run.processes.begin(), run.processes.end(), [&](const Process& process) {
    return !process.groups.empty() && !has_ended(run, process.pid);
  });
}

/// The others may wait for it, and nothing else tells of it.
bool a_rank_failed(const Run& run) {
  return std::any_of(run.ends.begin(), run.ends.end(),
                     [](const ProcessEnd& end) { return end.role == Role::kRank && end.failed(); });
}

}  // namespace

Watch::Watch(const WatchOptions& options, const Clock& clock, const Notices& notices, Record record,
             JobHosts* hosts)
    : options_(options),
      clock_(clock),
      notices_(notices),
      record_(std::move(record)),
      hosts_(hosts),
      schedule_(limit_of(options.stall_limit_s)) {
  if (options_.values)
    next_look_at_values_ = clock_() + kLookAtValuesEvery;
}

std::optional<std::string> Watch::certain_hang(const Run& live) const {
  return hang_told_ ? std::nullopt : checkers::certain_deadlock_of_all(live);
}

std::string Watch::follow(LiveJob& job) {
  if (options_.time_limit_s > 0)
    ends_at_ = clock_() + limit_of(options_.time_limit_s);
  while (true) {
    std::optional<std::string> end;
    const TimePoint next_step = schedule_.due(job.last_move());
    const TimePoint hosts_due = hosts_ == nullptr ? TimePoint::max() : hosts_->due();
    const launch::RunEvent event = job.wait(
        std::min({next_step, next_look_at_joining_, next_look_at_values_, ends_at_, hosts_due}));
    switch (event.kind) {
      case Kind::kOver:
        return "";
      case Kind::kStop:
        end = tell_hang(event.text, job);
        break;
      case Kind::kInterrupted:
        return interrupted(event.text, event.since_ns, job);
      case Kind::kDeadline:
        end = at_deadline(job);
        break;
      case Kind::kEnded:
        job.read_on();
        look_soon_at_joining(job);
        break;
      case Kind::kRank:
        look_soon_at_joining(job);
        break;
      case Kind::kOrphaned:
        notices_.tell("ORPHANS", event.text);
        break;
    }
    if (end)
      return *end;
  }
}

/// Why the job must be ended, if it must.
std::optional<std::string> Watch::at_deadline(LiveJob& job) {
  if (clock_() >= ends_at_)
    return interrupted(fmt::format("--time-limit {} s", options_.time_limit_s), 0, job);
  if (hosts_ != nullptr && clock_() >= hosts_->due())
    return look_at_hosts(job);
  if (clock_() >= next_look_at_values_)
    return look_at_values(job);
  if (clock_() >= next_look_at_joining_) {
    const std::optional<std::string> why = look_at_joining(job);
    return why ? tell_hang(*why, job) : std::nullopt;
  }
  switch (schedule_.step(stalled_for(job))) {
    case StallSchedule::Step::kGiveUp:
      return give_up(job);
    case StallSchedule::Step::kTell:
      tell_stall(job);
      break;
    case StallSchedule::Step::kLook:
      look_before_notice(job);
      break;
    case StallSchedule::Step::kNone:
      break;
  }
  return std::nullopt;
}

/// Why the job must be ended, if it must.
std::optional<std::string> Watch::tell_hang(const std::string& what, LiveJob& job) {
  tell_activity("DEADLOCK", what, job);
  hang_told_ = true;
  if (options_.on_hang != OnHang::kEnd)
    return std::nullopt;
  if (hosts_ != nullptr)
    agree_with_hosts(what, job);
  return "deadlock: " + what;
}

/// What one of them found ends the ranks of all, each those of its own.
std::optional<std::string> Watch::look_at_hosts(LiveJob& job) {
  hosts_->look(job);
  const std::string why = hang_told_ ? "" : hosts_->verdict();
  return why.empty() ? std::nullopt : tell_hang(why, job);
}

/// Each writes it down before anybody's ranks are ended: what theirs do then came of it.
void Watch::agree_with_hosts(const std::string& what, LiveJob& job) {
  if (hosts_->elsewhere().empty())
    return;
  record_(Acted{.at_ns = ns_of(clock_()), .action = "deadlock", .reason = what});
  hosts_->agree(what);
  const TimePoint end = clock_() + kHostsMayTake;
  hosts_->look(job);
  while (!hosts_->all_agree() && clock_() < end) {
    const launch::RunEvent event = job.wait(std::min(end, hosts_->due()));
    if (event.kind == Kind::kOver || event.kind == Kind::kInterrupted)
      return;
    if (event.kind == Kind::kDeadline)
      hosts_->look(job);
  }
}

/// Its ranks: one failed that nobody may start again, or two have one number.
bool Watch::may_never_join(const LiveJob& job) const {
  return !hang_told_ && !has_a_group(job.history()) &&
         (a_rank_failed(job.history()) || job.lost_a_child() ||
          (!options_.ranks_are_started && job.share_a_rank()));
}

void Watch::look_soon_at_joining(const LiveJob& job) {
  if (may_never_join(job))
    next_look_at_joining_ = std::min(next_look_at_joining_, clock_() + kLookAtJoiningAfter);
}

/// Before there is a group no history tells who waits for whom. The pauses grow with the time that
/// has passed.
std::optional<std::string> Watch::look_at_joining(LiveJob& job) {
  next_look_at_joining_ = TimePoint::max();
  if (has_a_group(job.history()))
    return std::nullopt;
  job.sample(/*before_the_end=*/false);
  // A launcher may start a rank again: not one that stands still for that long.
  const bool others_waited = std::exchange(others_waited_, job.others_wait());
  const bool nobody_starts_one = options_.ranks_are_started || (others_waited && others_waited_);
  auto why = nobody_starts_one
                 ? checkers::cannot_all_join(job.history(), !options_.ranks_are_started)
                 : std::nullopt;
  if (!why && !options_.ranks_are_started)
    why = checkers::ranks_that_nobody_can_meet(job.history());
  if (!why)
    next_look_at_joining_ = clock_() + std::clamp<Duration>(stalled_for(job) / 2,
                                                            kLookAtJoiningAfter, kLookAtLeastEvery);
  return why;
}

/// Told once. Why the job must be ended, if it must.
std::optional<std::string> Watch::look_at_values(LiveJob& job) {
  job.read_on();
  const std::optional<std::string> parted = checkers::first_divergence(job.history());
  next_look_at_values_ = parted ? TimePoint::max() : clock_() + kLookAtValuesEvery;
  if (!parted)
    return std::nullopt;
  notices_.tell("PARTED", *parted);
  return options_.on_divergence == OnDivergence::kEnd ? std::optional("divergence: " + *parted)
                                                      : std::nullopt;
}

std::string Watch::give_up(LiveJob& job) {
  job.sample(/*before_the_end=*/true);
  std::string why = fmt::format("--stall-limit {} s", options_.stall_limit_s);
  tell_activity("STALLED", why, job);
  record_(Acted{.at_ns = ns_of(clock_()), .action = "deadline", .reason = why});
  return why;
}

/// `since_ns`: when it began to end by itself; 0: now.
std::string Watch::interrupted(const std::string& why, std::uint64_t since_ns, LiveJob& job) {
  job.sample(/*before_the_end=*/true);
  tell_activity("STOPPING", why, job);
  record_(Acted{
      .at_ns = since_ns != 0 ? since_ns : ns_of(clock_()), .action = "interrupted", .reason = why});
  return why;
}

/// What is there when the notice comes, too, has lasted. (Whoever imports moves.)
void Watch::look_before_notice(LiveJob& job) {
  if (schedule_.looked() > 1 || !has_a_group(job.history()))
    job.sample(/*before_the_end=*/false);
}

void Watch::tell_stall(LiveJob& job) {
  job.sample(/*before_the_end=*/false);
  const bool moved = stalled_for(job) < schedule_.notice_after();
  schedule_.told();
  const auto stalled = std::chrono::duration_cast<std::chrono::seconds>(stalled_for(job));
  const Run& run = job.history();
  if (moved || (one_imports(run) && stalled < kStartMayTake))
    return;
  for (const std::string& line : checkers::on_their_way_out(run))
    notices_.tell("LEAVING", line);
  if (has_a_group(run) || a_rank_failed(run) || stalled >= kStartMayTake)
    tell_activity("STALLED", fmt::format("no rank has moved for {} s", stalled.count()), job);
}

void Watch::tell_activity(std::string_view word, const std::string& what,
                          const LiveJob& job) const {
  notices_.tell(word, what);
  const RankSet elsewhere = hosts_ == nullptr ? RankSet{} : hosts_->elsewhere();
  for (const std::string& line :
       rank_activity(job.history(), job.living(), ns_of(clock_()), elsewhere))
    notices_.detail(line);
  if (hosts_ == nullptr)
    return;
  for (const std::string& line : hosts_->doing())
    notices_.detail(line);
}

Duration Watch::stalled_for(const LiveJob& job) const { return clock_() - job.last_move(); }

}  // namespace lockstep::session
