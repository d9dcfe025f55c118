#include "harness/launch/run_job.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <deque>
#include <filesystem>
#include <map>
#include <thread>

#include "harness/base/clock.h"
#include "harness/launch/last_words.h"
#include "harness/launch/output.h"
#include "harness/launch/rank_environment.h"
#include "harness/launch/spawn.h"
#include "harness/os/poll_until.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLookEvery{250};
constexpr milliseconds kLeftoverSlice{20};
constexpr milliseconds kLeftoversMayTake{10'000};
constexpr int kLooksMax = 20;  // between fork and exec the environment is still its parent's
constexpr std::size_t kProcessNameMax = 15;  // what the kernel keeps of it

std::optional<std::int32_t> number_in_environment(std::int32_t pid, std::string_view name) {
  const std::optional<std::string> text = os::environment_value(pid, name);
  std::int32_t number = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}

// A rank's own: the first of its family that is told so. What it starts inherits the variable.
std::optional<Rank> told_rank(const os::ProcessStat& process) {
  const std::optional<std::int32_t> rank = number_in_environment(process.id.pid, "RANK");
  if (!rank || *rank < 0 || os::environment_value(process.parent, "RANK") == std::to_string(*rank))
    return std::nullopt;
  return Rank{*rank};
}

}  // namespace

class RunJob::Impl {
 public:
  Impl(Supervisor& supervisor, RunJobOptions options)
      : supervisor_(supervisor),
        options_(std::move(options)),
        prober_(options_, supervisor.stack_sampler()),
        output_(options_.log_bytes_max) {}

  Result<void> start();
  RunEvent wait(Clock::time_point deadline);
  EndReport end(const std::string& reason);
  EndReport clear();
  void spare(std::vector<os::ProcessStat>& spared);
  void sample() { prober_.look(watched()); }
  [[nodiscard]] std::vector<const JobProcess*> processes() const;
  [[nodiscard]] std::int32_t world_size() const { return std::max(options_.ranks, world_size_); }
  [[nodiscard]] Clock::time_point last_move() const { return prober_.last_move(); }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  // The stream of its stderr, of one that we started as a rank.
  struct Tracked : JobProcess {
    std::optional<std::size_t> error_stream{};
  };

  Result<void> start_rank(std::int32_t rank, std::uint16_t port);
  Result<void> start_command();
  Tracked& track(Role role, std::optional<Rank> rank, os::ProcessHandle process);
  std::optional<RunEvent> next_event(Clock::time_point deadline);
  void poll_once(Clock::time_point until);
  bool take_ends();
  void tell_last_words(const Tracked& process);
  bool look_for_ranks();
  bool rank_found(const os::ProcessId& id, Rank rank);
  [[nodiscard]] bool is_known(Rank rank) const;
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] std::vector<Watched> watched() const;
  std::vector<JobProcess*> all();

  template <class E>
  void record(const E& event) {
    // A record that cannot be written is seen as a gap by the reader.
    if (options_.journal != nullptr)
      (void)options_.journal->append(event);
  }

  Supervisor& supervisor_;
  RunJobOptions options_;
  Prober prober_;
  Output output_;
  std::deque<Tracked> processes_{};  // Stable addresses.
  std::map<os::ProcessId, int> looks_{};
  std::int32_t world_size_{};
  Clock::time_point next_look_{};
  int interrupts_told_{};
  bool guard_death_told_{};
  bool ended_{};
};

Result<void> RunJob::Impl::start() {
  if (options_.ranks == 0)
    return start_command();
  const Result<std::uint16_t> port = free_port();
  if (!port)
    return port.error();
  for (std::int32_t rank = 0; rank < options_.ranks; ++rank) {
    if (const std::string why = supervisor_.interrupted(); !why.empty())
      return Error{Error::Kind::kInterrupted, why, ""};
    if (Result<void> started = start_rank(rank, *port); !started)
      return started;
  }
  prober_.something_happened();
  return {};
}

Result<void> RunJob::Impl::start_rank(std::int32_t rank, std::uint16_t port) {
  const std::string base = fmt::format("{}/{}", options_.logs_directory, rank);
  const Result<UniqueFd> out = output_.add(base + ".out", STDOUT_FILENO);
  const Result<UniqueFd> err = output_.add(base + ".err", STDERR_FILENO);
  if (!out || !err)
    return out ? err.error() : out.error();
  SpawnOptions spawned;
  spawned.command = options_.command;
  spawned.signals = supervisor_.signals_at_start();
  spawned.environment = rank_environment(rank, options_.ranks, port);
  spawned.environment.insert(options_.environment.begin(), options_.environment.end());
  spawned.stdin_fd = rank == 0 ? STDIN_FILENO : -1;
  spawned.own_group = rank != 0 || ::isatty(STDIN_FILENO) != 1;  // Else it could not read from it.
  spawned.stdout_fd = out->get();
  spawned.stderr_fd = err->get();
  Result<os::ProcessHandle> process = spawn(spawned);
  if (!process)
    return process.error();
  track(Role::kRank, Rank{rank}, std::move(*process)).error_stream = output_.last_stream();
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
  track(Role::kOther, std::nullopt, std::move(*process));
  prober_.something_happened();
  return {};
}

RunJob::Impl::Tracked& RunJob::Impl::track(Role role, std::optional<Rank> rank,
                                           os::ProcessHandle process) {
  Tracked& tracked = processes_.emplace_back();
  tracked.role = role;
  tracked.rank = rank;
  tracked.process = std::move(process);
  record(ProcessStart{.at_ns = now_ns(), .role = role, .rank = rank, .pid = tracked.process.pid()});
  return tracked;
}

RunEvent RunJob::Impl::wait(Clock::time_point deadline) {
  while (true) {
    if (std::optional<RunEvent> event = next_event(deadline))
      return std::move(*event);
    poll_once(std::min({deadline, next_look_, prober_.due()}));
  }
}

std::optional<RunEvent> RunJob::Impl::next_event(Clock::time_point deadline) {
  if (const std::string why = supervisor_.interrupted(); !why.empty()) {
    const int count = supervisor_.interrupts();
    const bool guard_death = supervisor_.guard_died();
    if (count > interrupts_told_ || (guard_death && !guard_death_told_)) {
      interrupts_told_ = count;
      guard_death_told_ = guard_death;
      // A key of the terminal reaches the command as well: how it ends from now on is our doing.
      for (Tracked& process : processes_) {
        if (process.lives())
          process.signalled = OurSignal{SIGINT, why};
      }
      return RunEvent{RunEvent::Kind::kInterrupted, why};
    }
  }
  output_.pump();
  if (take_ends())
    return RunEvent{is_over() ? RunEvent::Kind::kOver : RunEvent::Kind::kEnded, ""};
  if (is_over())
    return RunEvent{RunEvent::Kind::kOver, ""};
  if (Clock::now() >= deadline)
    return RunEvent{RunEvent::Kind::kDeadline, ""};
  if (Clock::now() >= next_look_ && look_for_ranks())
    return RunEvent{RunEvent::Kind::kRank, ""};
  if (Clock::now() < prober_.due())
    return std::nullopt;
  if (std::optional<std::string> reason = prober_.step(watched()))
    return RunEvent{RunEvent::Kind::kStop, std::move(*reason)};
  return std::nullopt;
}

void RunJob::Impl::poll_once(Clock::time_point until) {
  std::vector<pollfd> entries;
  for (const Tracked& process : processes_) {
    if (process.lives())
      entries.push_back({.fd = process.process.pidfd(), .events = POLLIN, .revents = 0});
  }
  entries.push_back({.fd = supervisor_.interrupt_fd(), .events = POLLIN, .revents = 0});
  if (supervisor_.guard_fd() >= 0 && !guard_death_told_)
    entries.push_back({.fd = supervisor_.guard_fd(), .events = POLLIN, .revents = 0});
  output_.wait_for(entries);
  if (::poll(entries.data(), entries.size(), os::poll_timeout_ms(until)) > 0)
    supervisor_.drain_interrupt_fd();
}

bool RunJob::Impl::take_ends() {
  bool any = false;
  for (Tracked& process : processes_) {
    if (!process.lives() || !process.process.ended())
      continue;
    output_.pump();
    tell_last_words(process);
    take_end(process, options_.journal);
    prober_.something_happened();
    any = true;
  }
  return any;
}

void RunJob::Impl::tell_last_words(const Tracked& process) {
  if (!process.error_stream)
    return;
  std::optional<LastWords> words = last_words(output_.tail(*process.error_stream));
  if (!words)
    return;
  record(Raised{.at_ns = output_.last_read_ns(*process.error_stream),
                .rank = process.rank,
                .pid = process.process.pid(),
                .text = std::move(words->text),
                .raised_at = std::move(words->raised_at)});
}

// Orphans that we inherited are reaped; who is a rank is told by a history with a default group, or
// by the environment.
bool RunJob::Impl::look_for_ranks() {
  const Clock::time_point begun = Clock::now();
  bool found = false;
  for (const os::ProcessStat& process : os::descendants_of(::getpid(), os::read_processes())) {
    const bool tracked = std::any_of(processes_.begin(), processes_.end(), [&](const Tracked& t) {
      return t.process.id() == process.id;
    });
    if (process.zombie() && process.parent == ::getpid() && !tracked)
      os::reap_pid_if_ended(process.id.pid);
    if (options_.ranks > 0 || process.zombie() || ++looks_[process.id] > kLooksMax)
      continue;
    const std::optional<Rank> rank = told_rank(process);
    // What a rank left behind has its number, too, and nobody above it any more to tell it from
    // one.
    if (rank && !(process.parent == ::getpid() && is_known(*rank))) {
      found |= rank_found(process.id, *rank);
      world_size_ =
          std::max(world_size_, number_in_environment(process.id.pid, "WORLD_SIZE").value_or(0));
    }
  }
  for (const Process& process : options_.follower->run().processes) {
    if (!process.rank || process.world_size < 2 || process.groups.empty())
      continue;
    found |= rank_found({process.pid, process.start_ticks}, *process.rank);
    world_size_ = std::max(world_size_, process.world_size);
  }
  // Where there are many processes, looking at them takes its time.
  next_look_ = Clock::now() + std::max<Clock::duration>(kLookEvery, 50 * (Clock::now() - begun));
  options_.follower->set_world_size(world_size());
  return found;
}

bool RunJob::Impl::rank_found(const os::ProcessId& id, Rank rank) {
  const bool known = std::any_of(processes_.begin(), processes_.end(), [&](const Tracked& process) {
    return process.process.id() == id;
  });
  std::optional<os::ProcessHandle> process = known ? std::nullopt : os::ProcessHandle::open(id);
  if (!process)
    return false;
  track(Role::kRank, rank, std::move(*process));
  prober_.something_happened();
  return true;
}

bool RunJob::Impl::is_known(Rank rank) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [&](const Tracked& process) { return process.rank == rank; });
}

bool RunJob::Impl::is_over() const {
  return std::none_of(processes_.begin(), processes_.end(),
                      [](const Tracked& process) { return process.lives(); });
}

std::vector<Watched> RunJob::Impl::watched() const {
  std::vector<Watched> living;
  for (const Tracked& process : processes_) {
    if (process.lives() && process.role == Role::kRank)
      living.push_back({.rank = process.rank, .id = process.process.id()});
  }
  return living;
}

std::vector<JobProcess*> RunJob::Impl::all() {
  std::vector<JobProcess*> pointers;
  for (Tracked& process : processes_)
    pointers.push_back(&process);
  return pointers;
}

std::vector<const JobProcess*> RunJob::Impl::processes() const {
  std::vector<const JobProcess*> pointers;
  for (const Tracked& process : processes_)
    pointers.push_back(&process);
  return pointers;
}

EndReport RunJob::Impl::end(const std::string& reason) {
  ended_ = true;
  JobEnding ending(supervisor_, options_.journal, all());
  ending.ask(reason, options_.grace, [this] { output_.pump(); });
  output_.pump();
  take_ends();
  EndReport report = ending.kill(reason);
  output_.pump();
  return report;
}

void RunJob::Impl::spare(std::vector<os::ProcessStat>& spared) {
  const std::vector<std::string>& allowed = options_.allowed_survivors;
  for (os::ProcessStat& process : os::members_of(supervisor_.family())) {
    const bool named = std::any_of(allowed.begin(), allowed.end(), [&](const std::string& name) {
      return name.substr(0, kProcessNameMax) == process.name;
    });
    if (process.zombie() || !(options_.keep || named))
      continue;
    if (!supervisor_.let_live(process.id))
      continue;
    spared.push_back(std::move(process));
  }
}

EndReport RunJob::Impl::clear() {
  ended_ = true;
  std::vector<os::ProcessStat> spared;
  const Clock::time_point deadline = Clock::now() + kLeftoversMayTake;
  while (Clock::now() < deadline && supervisor_.interrupted().empty()) {
    look_for_ranks();
    spare(spared);  // Its name may only be there after its exec.
    if (os::members_of(supervisor_.family()).empty())
      break;
    std::this_thread::sleep_for(kLeftoverSlice);
    output_.pump();
  }
  EndReport report = JobEnding(supervisor_, options_.journal, all()).kill("the job is over");
  report.spared = std::move(spared);
  output_.pump();
  return report;
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
void RunJob::sample() { impl_->sample(); }
EndReport RunJob::end(const std::string& reason) { return impl_->end(reason); }
EndReport RunJob::clear() { return impl_->clear(); }

}  // namespace lockstep::launch
