#include "harness/launch/prober.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "harness/base/clock.h"
#include "harness/os/awaited.h"
#include "harness/os/proc.h"
#include "harness/os/stack_modules.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{250};
// Of looks at ranks that go on now and then: so many times as long as one takes the next one waits.
constexpr int kPauseOfLooks = 30;
constexpr milliseconds kPauseOfLooksMax{3'000};
// From letting the threads go after their stacks were copied until they sleep again, with room to
// spare.
constexpr milliseconds kSettle{20};
constexpr milliseconds kStackLimit{500};     // for the stacks of one process
constexpr milliseconds kStacksLimit{1'500};  // and of all
constexpr milliseconds kWatchEveryMax{500};
constexpr std::size_t kThreadsMax = 64;
constexpr std::size_t kChildrenMax = 32;

const Process* process_of(const Run& run, const Watched& watched) {
  for (const Process& process : run.processes) {
    if (process.pid == watched.id.pid && process.start_ticks == watched.id.start_ticks)
      return &process;
  }
  return nullptr;
}

// Something was issued that did not come back or complete. Operations that never say so keep this
// true, as does a message that is the last thing issued, which costs a look now and then.
bool has_outstanding(const Process& process) {
  const bool message =
      !process.collectives.empty() && history::is_point_to_point(process.collectives.back().op);
  return message ||
         std::any_of(process.groups.begin(), process.groups.end(), [](const Group& group) {
           return group.returned < group.issued || group.completed < group.issued;
         });
}

std::set<std::int32_t> threads_of(std::int32_t pid) {
  std::set<std::int32_t> threads;
  for (const os::ThreadStat& thread : os::read_threads(pid)) {
    if (threads.size() < kThreadsMax)
      threads.insert(thread.tid);
  }
  return threads;
}

std::set<std::int32_t> issuers_of(const Process* process, std::int32_t pid) {
  std::set<std::int32_t> threads{pid};
  if (process == nullptr)
    return threads;
  for (const Collective& collective : process->collectives)
    threads.insert(static_cast<std::int32_t>(collective.thread));
  return threads;
}

/// The processor time of this thread, until it goes.
class Taken {
 public:
  explicit Taken(std::uint64_t& sum_ns) : sum_ns_(sum_ns) {}
  ~Taken() { sum_ns_ += thread_cpu_ns() - begun_ns_; }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

 private:
  std::uint64_t& sum_ns_;
  std::uint64_t begun_ns_{thread_cpu_ns()};
};

}  // namespace

void Prober::something_happened() {
  last_move_ = Clock::now();
  if (options_.follower == nullptr || !options_.stop_when)
    return;
  pause_ = kFirstPause;
  not_before_ = {};
  if (stage_ == Stage::kWatching)
    due_ = std::min(due_, Clock::now() + options_.quiet_before_samples);
}

void Prober::go_on(Stage stage, milliseconds after) {
  stage_ = stage;
  due_ = Clock::now() + after;
}

std::optional<std::string> Prober::step(const std::vector<Watched>& processes) {
  sampler_.release();
  options_.follower->poll();
  const bool still = someone_stands_still(processes);
  const bool moved = head_moved_ > look_began_;  // A look that began before is of no one instant.
  if (!still || moved || stage_ == Stage::kWatching) {
    if (still && (moved ? may_look_again() : Clock::now() >= not_before_)) {
      look_began_ = Clock::now();
      look_took_ns_ = 0;
      const Taken taken(look_took_ns_);
      sample_stacks(processes);
      go_on(Stage::kFirstReading, kSettle);
    } else {
      const milliseconds pause = moved ? kFirstPause : pause_;
      go_on(Stage::kWatching, std::clamp(pause / 4, options_.quiet_before_samples, kWatchEveryMax));
    }
    return std::nullopt;
  }
  const Taken taken(look_took_ns_);
  read_states(processes);
  if (stage_ == Stage::kFirstReading) {
    go_on(Stage::kSecondReading, options_.between_samples);
    return std::nullopt;
  }
  options_.follower->poll();
  std::optional<std::string> reason = options_.stop_when(options_.follower->run());
  pause_ = std::exchange(fruitless_, head_moved_) == head_moved_
               ? std::min(pause_ * 2, options_.sample_pause_max)
               : kFirstPause;
  not_before_ = Clock::now() + pause_;
  go_on(Stage::kWatching, options_.quiet_before_samples);
  return reason;
}

/// Looks at a job that has moved since the last one.
bool Prober::may_look_again() const {
  const auto pause = std::chrono::duration_cast<milliseconds>(
      std::chrono::nanoseconds(look_took_ns_ * kPauseOfLooks));
  return Clock::now() >= look_began_ + std::min(pause, kPauseOfLooksMax);
}

void Prober::notice_moves(const std::vector<Watched>& processes) {
  if (options_.follower == nullptr)
    return;
  options_.follower->poll();
  someone_stands_still(processes);
}

void Prober::look(const std::vector<Watched>& processes, bool before_the_end) {
  if (options_.follower == nullptr)
    return;
  options_.follower->poll();
  stops_those_that_run_ = before_the_end;
  sample_stacks(processes);
  stops_those_that_run_ = false;
  std::this_thread::sleep_for(kSettle);
  read_states(processes);
  std::this_thread::sleep_for(options_.between_samples);
  read_states(processes);
  notice_moves(processes);
}

void Prober::look_again(const std::vector<Watched>& processes) {
  if (options_.follower == nullptr)
    return;
  read_states(processes);
  notice_moves(processes);
}

bool Prober::someone_stands_still(const std::vector<Watched>& processes) {
  const Clock::time_point now = Clock::now();
  bool still = false;
  for (const Watched& watched : processes) {
    const Process* process = process_of(options_.follower->run(), watched);
    if (process == nullptr)
      continue;
    const std::optional<history::Head> head = options_.follower->head(watched.id.pid);
    Stillness& seen = still_[watched.id.pid];
    if (seen.head != head) {
      seen = {.head = head, .since = now};
      last_move_ = head_moved_ = now;
    }
    seen.outstanding = has_outstanding(*process);
    still |= seen.outstanding && now - seen.since >= options_.quiet_before_samples;
  }
  return still;
}

void Prober::sample_stacks(const std::vector<Watched>& processes) {
  const Clock::time_point all_until = Clock::now() + kStacksLimit;
  for (const Watched& watched : processes) {
    const Clock::time_point deadline = std::min(all_until, Clock::now() + kStackLimit);
    const std::int32_t pid = watched.id.pid;
    python_threads_.clear();
    if (options_.all_threads) {
      if (auto threads = os::read_python_threads(pid))
        python_threads_ = std::move(*threads);
    }
    for (const std::int32_t tid :
         options_.all_threads ? threads_of(pid)
                              : issuers_of(process_of(options_.follower->run(), watched), pid))
      sample_stack(watched, tid, deadline);
  }
}

void Prober::sample_stack(const Watched& watched, std::int32_t tid, Clock::time_point deadline) {
  if (!os::sleeps_in_restartable_wait(watched.id.pid, tid) &&
      !(stops_those_that_run_ && os::runs(watched.id.pid, tid))) {
    if (options_.all_threads)
      scan_stack(watched, tid);
    return;
  }
  const Result<std::vector<os::NativeFrame>> frames =
      sampler_.sample(watched.id.pid, tid, deadline);
  if (!frames) {
    if (!std::exchange(refusal_noted_, true))
      record(Note{.at_ns = now_ns(), .text = frames.error().what});
    if (options_.all_threads)
      scan_stack(watched, tid);
    return;
  }
  StackSample sample{.at_ns = now_ns(), .rank = watched.rank, .pid = watched.id.pid, .tid = tid};
  for (const os::NativeFrame& frame : *frames)
    sample.frames.push_back(
        {.module = frame.module, .offset = frame.offset, .function = frame.function});
  add_python_frames(sample);
  record(sample);
}

// After the native ones, which are inside of them; with them goes when the thread started.
void Prober::add_python_frames(StackSample& sample) const {
  if (sample.tid != sample.pid)
    sample.started_ns = os::thread_started_ns(sample.pid, sample.tid);
  for (const os::PythonThread& thread : python_threads_) {
    if (thread.tid != sample.tid)
      continue;
    const auto as_frame = [](const os::PythonFrame& frame) {
      return Frame{.module = frame.file,
                   .offset = frame.position,
                   .file = frame.file,
                   .line = frame.line,
                   .function = frame.function};
    };
    for (const os::PythonFrame& frame : thread.frames) {
      for (const auto& [name, value] : frame.integers)
        sample.variables.push_back({static_cast<std::uint32_t>(sample.frames.size()), name, value});
      sample.frames.push_back(as_frame(frame));
    }
    sample.handles = thread.handles;
    for (const os::PythonFrame& frame : thread.passed)
      sample.raised_at.frames.push_back(as_frame(frame));
  }
}

// A wait that a stop would cut short is left alone; whose code is on the stack can be told all the
// same. Of a thread that runs, its Python frames are all that is told.
void Prober::scan_stack(const Watched& watched, std::int32_t tid) {
  StackSample sample{.at_ns = now_ns(), .rank = watched.rank, .pid = watched.id.pid, .tid = tid};
  if (const auto modules = os::modules_on_stack(watched.id.pid, tid)) {
    for (const std::string& module : *modules)
      sample.frames.push_back({.module = module});
  }
  add_python_frames(sample);
  if (!sample.frames.empty())
    record(sample);
}

void Prober::add_children(StateSample& sample, const std::vector<os::ProcessStat>& all) {
  for (const os::ProcessStat& process : all) {
    if (process.parent != sample.pid || sample.children.size() >= kChildrenMax)
      continue;
    ChildState& child = sample.children.emplace_back();
    child.pid = process.id.pid;
    child.name = process.name;
    child.state = process.state;
    child.wchan = os::wait_channel(process.id.pid, process.id.pid);
  }
  if (!sample.children.empty())
    sample.waits_for_child = os::waits_for_child(sample.pid);
}

void Prober::add_holders(StateSample& sample, const std::vector<Watched>& processes) {
  std::vector<std::int32_t> others;
  for (const Watched& watched : processes) {
    if (watched.rank && watched.id.pid != sample.pid)
      others.push_back(watched.id.pid);
  }
  std::vector<std::int32_t> holders = os::holders_of_what_it_waits_for(sample.pid, others);
  if (sample.waits_for_child) {
    for (const ChildState& child : sample.children) {
      for (const std::int32_t holder : os::holders_of_what_it_waits_for(child.pid, others))
        holders.push_back(holder);
    }
  }
  for (const Watched& watched : processes) {
    if (std::find(holders.begin(), holders.end(), watched.id.pid) != holders.end())
      sample.held_by.insert(*watched.rank);
  }
}

ThreadState state_of(std::int32_t pid, os::ThreadStat thread) {
  const auto own_wait = os::waits_for_own_threads(pid, thread.tid);
  return {.tid = thread.tid,
          .state = thread.state,
          .wchan = std::move(thread.wchan),
          .context_switches = thread.context_switches,
          .cpu_ns = thread.cpu_ns,
          .for_own_threads = own_wait.has_value(),
          .for_ever = own_wait && own_wait->for_ever,
          .until_ns = own_wait ? own_wait->until_ns : std::nullopt};
}

bool sleeps_without_limit(std::int32_t pid) {
  std::vector<os::ThreadStat> threads = os::read_threads(pid);
  return std::all_of(threads.begin(), threads.end(), [&](os::ThreadStat& thread) {
    const bool reads_pipe = thread.wchan.find("pipe_read") != std::string::npos;
    const bool is_first = thread.tid == pid;
    return reads_pipe || (is_first && os::waits_for_child(pid)) ||
           state_of(pid, std::move(thread)).for_ever;
  });
}

// The head must be the same before and after the threads are read, else the reading is of no
// instant.
void Prober::read_states(const std::vector<Watched>& processes) {
  const std::vector<os::ProcessStat> all =
      options_.all_threads ? os::read_processes() : std::vector<os::ProcessStat>();
  for (const Watched& watched : processes) {
    const std::optional<history::Head> before = options_.follower->head(watched.id.pid);
    StateSample sample{.at_ns = now_ns(), .rank = watched.rank, .pid = watched.id.pid};
    for (os::ThreadStat& thread : os::read_threads(watched.id.pid)) {
      sample.threads.push_back(state_of(watched.id.pid, std::move(thread)));
    }
    sample.caught_signals = os::caught_signals(watched.id.pid);
    add_children(sample, all);
    add_holders(sample, processes);
    if (before != options_.follower->head(watched.id.pid))
      continue;
    sample.head = before ? before->records : 0;
    record(sample);
  }
}

}  // namespace lockstep::launch
