#include "harness/launch/run_job.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "harness/base/clock.h"
#include "harness/launch/interrupts.h"
#include "harness/launch/rank_environment.h"
#include "harness/launch/run_job_impl.h"
#include "harness/launch/spawn.h"
#include "harness/launch/starvation.h"
#include "harness/os/proc.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLeftoverSlice{20};
constexpr milliseconds kLeftoversMayTake{10'000};
constexpr milliseconds kOutputMayTake{1'000};  // Of a job that was ended.
constexpr std::chrono::nanoseconds kStarvationMax = std::chrono::seconds(50);
constexpr milliseconds kFallsAsleepWithin{200};
constexpr std::uint64_t kOrphansAreToldAfterNs = 1'000'000'000;
constexpr std::size_t kProcessNameMax = 15;  // what the kernel keeps of it

/// Rank 0 of ours: it has to be in the terminal's process group for that.
bool one_reads_from_terminal() { return ::isatty(STDIN_FILENO) == 1; }

}  // namespace

Result<void> RunJob::Impl::start() {
  if (options_.ranks == 0)
    return start_command();
  Result<MeetingPort> port = pick_meeting_port();
  if (!port)
    return port.error();
  port_ = std::move(*port);
  for (std::int32_t rank = 0; rank < options_.ranks; ++rank) {
    if (const std::string why = supervisor_.interrupted(); !why.empty())
      return Error{Error::Kind::kInterrupted, why, ""};
    if (Result<void> started = start_rank(rank); !started)
      return started;
  }
  loop_.prober().something_happened();
  return {};
}

Result<void> RunJob::Impl::start_rank(std::int32_t rank) {
  const std::string base = fmt::format("{}/{}", options_.logs_directory, rank);
  const Result<UniqueFd> out = output_.add(base + ".out", STDOUT_FILENO);
  const Result<UniqueFd> err = output_.add(base + ".err", STDERR_FILENO);
  if (!out || !err)
    return out ? err.error() : out.error();
  SpawnOptions spawned;
  spawned.command = options_.command;
  spawned.signals = supervisor_.signals_at_start();
  spawned.environment = rank_environment(rank, options_.ranks, port_.number);
  spawned.environment.insert(options_.environment.begin(), options_.environment.end());
  spawned.stdin_fd = rank == 0 ? STDIN_FILENO : -1;
  spawned.own_group = rank != 0 || !one_reads_from_terminal();
  spawned.stdout_fd = out->get();
  spawned.stderr_fd = err->get();
  Result<os::ProcessHandle> process = spawn(spawned);
  if (!process)
    return process.error();
  processes_.add(Role::kRank, Rank{rank}, std::move(*process)).error_stream = output_.last_stream();
  return {};
}

Result<void> RunJob::Impl::start_command() {
  SpawnOptions spawned;
  spawned.command = options_.command;
  spawned.environment = options_.environment;
  spawned.signals = supervisor_.signals_at_start();
  spawned.as_we_are = true;
  Result<os::ProcessHandle> process = spawn(spawned);
  if (!process)
    return process.error();
  processes_.add(Role::kOther, std::nullopt, std::move(*process));
  loop_.prober().something_happened();
  return {};
}

RunEvent RunJob::Impl::wait(Clock::time_point deadline) {
  while (true) {
    if (std::optional<RunEvent> event = next_event(deadline))
      return std::move(*event);
    poll_once(std::min({deadline, search_.due(), loop_.prober().due(), output_.due()}));
  }
}

std::uint64_t RunJob::Impl::interrupted_since_ns() const {
  const bool one_is_in_our_group = options_.ranks == 0 || one_reads_from_terminal();
  return one_is_in_our_group && whole_group_was_interrupted() ? first_interrupt_ns() : 0;
}

std::optional<RunEvent> RunJob::Impl::next_event(Clock::time_point deadline) {
  if (const std::optional<std::string> why = loop_.new_interrupt()) {
    // A key of the terminal reaches the command as well: how it ends from now on is our doing.
    for (Tracked& process : processes_.each()) {
      if (process.lives())
        process.signalled = OurSignal{SIGINT, *why};
    }
    return RunEvent{RunEvent::Kind::kInterrupted, *why, interrupted_since_ns()};
  }
  output_.pump();
  look_at_who_aborts();
  if (take_ends())
    return RunEvent{processes_.any_lives() ? RunEvent::Kind::kEnded : RunEvent::Kind::kOver, ""};
  if (!processes_.any_lives() || only_orphans_live())
    return RunEvent{RunEvent::Kind::kOver, ""};
  const bool at_deadline = Clock::now() >= deadline;
  if (at_deadline)  // On a busy machine that may be the first look for long.
    loop_.prober().notice_moves(processes_.living(/*with_command=*/false));
  if (Clock::now() >= search_.due()) {
    const RankSearch::News news = search_.look();
    options_.follower->set_world_size(world_size());
    if (news.happened)
      loop_.prober().something_happened();
    strangers_.look_once(search_.in_a_group(), search_.family());
    if (const std::string gone = look_for_orphans(); !gone.empty())
      return RunEvent{RunEvent::Kind::kOrphaned, gone};
    if (news.found)
      return RunEvent{RunEvent::Kind::kRank, ""};
  }
  if (at_deadline)
    return RunEvent{RunEvent::Kind::kDeadline, ""};
  if (std::optional<std::string> reason =
          loop_.probe([this] { return processes_.living(/*with_command=*/false); }))
    return RunEvent{RunEvent::Kind::kStop, std::move(*reason)};
  return std::nullopt;
}

/// Those of whom ranks still live a moment later: who ends a whole job by a signal kills one after
/// the other. Empty if there is no news.
std::string RunJob::Impl::look_for_orphans() {
  for (const LauncherEnd& end : launchers_.look(search_.family(), processes_)) {
    record(end);
    killed_launchers_.push_back(end);
  }
  std::string news;
  std::erase_if(killed_launchers_, [&](const LauncherEnd& end) {
    if (now_ns() < end.at_ns + kOrphansAreToldAfterNs)
      return false;
    const std::string text = LauncherWatch::told_of(end, processes_);
    news += (news.empty() || text.empty() ? "" : "; ") + text;
    return true;
  });
  return news;
}

/// The command is over, and so is whoever would have ended them.
bool RunJob::Impl::only_orphans_live() const {
  const auto& all = processes_.each();
  return options_.ranks == 0 && killed_launchers_.empty() &&
         std::all_of(all.begin(), all.end(), [&](const Tracked& process) {
           return !process.lives() || launchers_.is_orphan(process.process.pid());
         });
}

// The shim makes such a process wait for this look (harness/tap/shim_end.c), which ends when the
// file is removed. It wrote the file a moment before it sleeps, and only of who sleeps the stack
// can be read.
void RunJob::Impl::look_at_who_aborts() {
  namespace fs = std::filesystem;
  if (Clock::now() < next_look_for_aborts_)
    return;
  next_look_for_aborts_ = Clock::now() + std::chrono::milliseconds(50);
  std::vector<fs::path> waiting;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(history_directory(), ignored)) {
    const fs::path& path = entry.path();
    if (path.extension() != ".aborts")
      continue;
    const fs::path thread = path.stem();  // PID.TID
    const auto written = fs::last_write_time(path, ignored);
    if (ignored)
      continue;
    if (!os::sleeps_in_restartable_wait(std::atoi(thread.c_str()),
                                        std::atoi(thread.extension().c_str() + 1)) &&
        fs::file_time_type::clock::now() - written < kFallsAsleepWithin)
      return;
    waiting.push_back(path);
  }
  if (!waiting.empty())
    sample(/*before_the_end=*/false);
  for (const fs::path& path : waiting)
    fs::remove(path, ignored);
}

std::string RunJob::Impl::history_directory() const {
  const auto at = options_.environment.find("LOCKSTEP_HISTORY");
  return at == options_.environment.end() ? "" : at->second;
}

void RunJob::Impl::poll_once(Clock::time_point until) {
  std::vector<const os::ProcessHandle*> living;
  for (const Tracked& process : processes_.each()) {
    if (process.lives())
      living.push_back(&process.process);
  }
  std::vector<pollfd> others{{.fd = search_.fd(), .events = POLLIN, .revents = 0}};
  output_.wait_for(others);
  loop_.wait(living, others, until);
  search_.hear();
}

bool RunJob::Impl::take_ends() {
  bool any = false;
  for (Tracked& process : processes_.each()) {
    if (!process.lives() || !process.process.ended())
      continue;
    output_.pump();
    tell_last_words(process);
    process.sent = sent_signals(history_directory(), process.process.pid());
    process.status_says_nothing = options_.ranks == 0 && !process.is_command &&
                                  a_library_ended(history_directory(), process.process.pid());
    processes_.take_end(process);
    if (process.failed_to_join)
      processes_.believe(process);
    loop_.prober().something_happened();
    any = true;
  }
  return any;
}

std::optional<ErrorTail> RunJob::Impl::error_tail_of(const Tracked& process) const {
  if (const std::optional<std::size_t> stream = processes_.error_stream_of(process))
    return ErrorTail{output_.tail(*stream), output_.last_read_ns(*stream)};
  return kept_error_tail(history_directory(), process.process.pid());
}

void RunJob::Impl::tell_last_words(Tracked& process) {
  const std::optional<ErrorTail> said = error_tail_of(process);
  if (!said)
    return;
  std::optional<LastWords> words = last_words(said->text);
  if (!words) {
    process.last_line = last_line(said->text);
    return;
  }
  Raised raised{.at_ns = said->at_ns,
                .rank = process.rank,
                .pid = process.process.pid(),
                .text = words->text,
                .found_out = who_holds_the_port(words->text),
                .raised_at = std::move(words->raised_at)};
  process.failed_to_join =
      process.role == Role::kRank &&
      std::any_of(raised.raised_at.frames.begin(), raised.raised_at.frames.end(),
                  [](const Frame& frame) { return frame.function == "init_process_group"; });
  if (process.role == Role::kOther) {  // Its own words are no rank's.
    if (const Tracked* const rank = processes_.ended_rank(spawned_index(said->text))) {
      raised.rank = rank->rank;
      raised.pid = rank->process.pid();
      raised.at_ns = rank->ended_ns;
    }
  }
  record(raised);
}

void RunJob::Impl::settle() {
  for (const Gone& gone : search_.settle()) {
    if (const auto raised = kept_last_words(history_directory(), gone.pid, gone.rank))
      record(*raised);
  }
}

std::vector<const JobProcess*> RunJob::Impl::processes() const {
  std::vector<const JobProcess*> pointers;
  for (const Tracked& process : processes_.each())
    pointers.push_back(&process);
  return pointers;
}

EndReport RunJob::Impl::end(const std::string& reason) {
  ended_ = true;
  settle();
  family_.finish();
  JobEnding ending(supervisor_, options_.journal, processes_.all(), family_.lineage());
  ending.ask(reason, options_.grace, [this] { output_.pump(); });
  output_.pump();
  take_ends();
  EndReport report = ending.kill(reason);
  family_.settle_objects(/*write_down=*/false);
  const Clock::time_point until = Clock::now() + kOutputMayTake;
  output_.finish([until] { return Clock::now() >= until; });
  return report;
}

/// Who is left of the job but those.
std::vector<os::ProcessStat> RunJob::Impl::spare(std::vector<os::ProcessStat>& spared) {
  const std::vector<std::string>& allowed = options_.allowed_survivors;
  std::vector<os::ProcessStat> left = os::members_of(supervisor_.family());
  const std::size_t spared_before = spared.size();
  for (const os::ProcessStat& process : left) {
    const bool named = std::any_of(allowed.begin(), allowed.end(), [&](const std::string& name) {
      return name.substr(0, kProcessNameMax) == process.name;
    });
    if (process.zombie() || !(options_.keep || named))
      continue;
    if (!supervisor_.let_live(process.id))
      continue;
    spared.push_back(process);
  }
  return spared.size() == spared_before ? left : os::members_of(supervisor_.family());
}

EndReport RunJob::Impl::clear() {
  ended_ = true;
  std::vector<os::ProcessStat> spared;
  const Clock::time_point deadline = Clock::now() + kLeftoversMayTake;
  Starvation starvation;
  settle();
  take_ends();
  for (Tracked& process : processes_.each())
    process.orphan = launchers_.is_orphan(process.process.pid());
  while (supervisor_.interrupted().empty()) {
    // Its name may only be there after its exec.
    const std::vector<os::ProcessStat> left = spare(spared);
    if (left.empty() ||
        Clock::now() >= deadline + std::min(starvation.longest(left), kStarvationMax))
      break;
    std::this_thread::sleep_for(kLeftoverSlice);
    output_.pump();
    take_ends();
    search_.look_at_family();
  }
  family_.finish();
  EndReport report = JobEnding(supervisor_, options_.journal, processes_.all(), family_.lineage())
                         .kill("the job is over");
  family_.settle_objects(/*write_down=*/true);
  report.spared = std::move(spared);
  // Who reads slowly would have held up the ranks without us.
  output_.finish([this] { return !supervisor_.interrupted().empty(); });
  return report;
}

bool RunJob::Impl::lost_a_child() const {
  const auto& all = processes_.each();
  return !processes_.failed().empty() ||
         std::any_of(all.begin(), all.end(), [](const Tracked& process) {
           return process.rank && !process.lives() && process.ended &&
                  process.ended->exit_status.value_or(1) != 0;
         });
}

bool RunJob::Impl::others_wait() const {
  const std::vector<os::ProcessStat> family = os::members_of(supervisor_.family());
  const auto& all = processes_.each();
  return std::all_of(family.begin(), family.end(), [&](const os::ProcessStat& process) {
    const bool is_rank = std::any_of(all.begin(), all.end(), [&](const Tracked& one) {
      return one.rank && one.process.id() == process.id;
    });
    return is_rank || process.zombie() || sleeps_without_limit(process.id.pid);
  });
}

RunJob::RunJob(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RunJob::~RunJob() {
  if (!impl_->ended())
    impl_->end("lockstep could not go on");
}

Result<std::unique_ptr<RunJob>> RunJob::start(Supervisor& supervisor, RunJobOptions options) {
  auto impl = std::make_unique<Impl>(supervisor, std::move(options));
  const Result<void> started = impl->start();
  // Its destructor ends what was started before something failed.
  std::unique_ptr<RunJob> job(new RunJob(std::move(impl)));
  if (!started)
    return started.error();
  return job;
}

RunEvent RunJob::wait(Clock::time_point deadline) { return impl_->wait(deadline); }
std::vector<const JobProcess*> RunJob::processes() const { return impl_->processes(); }
std::int32_t RunJob::world_size() const { return impl_->world_size(); }
RunJob::Clock::time_point RunJob::last_move() const { return impl_->last_move(); }
bool RunJob::share_a_rank() const { return impl_->share_a_rank(); }
bool RunJob::lost_a_child() const { return impl_->lost_a_child(); }
bool RunJob::others_wait() const { return impl_->others_wait(); }
void RunJob::sample(bool before_the_end) { impl_->sample(before_the_end); }
void RunJob::look_again() { impl_->look_again(); }
EndReport RunJob::end(const std::string& reason) { return impl_->end(reason); }
EndReport RunJob::clear() { return impl_->clear(); }

}  // namespace lockstep::launch
