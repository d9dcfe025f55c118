#include "harness/launch/prober.h"

#include <algorithm>
#include <set>

#include "harness/base/clock.h"
#include "harness/os/proc.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{250};
// From letting the threads go after their stacks were copied until they sleep again, with room to
// spare.
constexpr milliseconds kSettle{20};
constexpr milliseconds kStackLimit{500};  // for the stacks of one process
constexpr milliseconds kWatchEveryMax{500};

const Process* process_of(const Run& run, const Host& host) {
  for (const Process& process : run.processes) {
    if (process.pid == host.pid && process.start_ticks == host.start_ticks)
      return &process;
  }
  return nullptr;
}

// Something was issued that did not come back or complete. Operations that never say so keep this
// true, which costs a look now and then.
bool has_outstanding(const Process& process) {
  return std::any_of(process.groups.begin(), process.groups.end(), [](const Group& group) {
    return group.returned < group.issued || group.completed < group.issued;
  });
}

std::set<std::int32_t> issuers_of(const Process* process, std::int32_t pid) {
  std::set<std::int32_t> threads{pid};
  if (process == nullptr)
    return threads;
  for (const Collective& collective : process->collectives)
    threads.insert(static_cast<std::int32_t>(collective.thread));
  return threads;
}

}  // namespace

void Prober::something_happened() {
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

std::optional<std::string> Prober::step(const std::vector<Host>& hosts) {
  options_.follower->poll();
  const bool still = someone_stands_still(hosts);
  if (!still || stage_ == Stage::kWatching) {
    const bool look = still && Clock::now() >= not_before_;
    if (look) {
      sample_stacks(hosts);
      go_on(Stage::kFirstReading, kSettle);
    } else {
      go_on(Stage::kWatching,
            std::clamp(pause_ / 4, options_.quiet_before_samples, kWatchEveryMax));
    }
    return std::nullopt;
  }
  read_states(hosts);
  if (stage_ == Stage::kFirstReading) {
    go_on(Stage::kSecondReading, options_.between_samples);
    return std::nullopt;
  }
  options_.follower->poll();
  std::optional<std::string> reason = options_.stop_when(options_.follower->run());
  not_before_ = Clock::now() + pause_;
  pause_ = std::min(pause_ * 2, options_.sample_pause_max);
  go_on(Stage::kWatching, options_.quiet_before_samples);
  return reason;
}

bool Prober::someone_stands_still(const std::vector<Host>& hosts) {
  const Clock::time_point now = Clock::now();
  bool still = false;
  for (const Host& host : hosts) {
    const Process* process = process_of(options_.follower->run(), host);
    if (host.ended || process == nullptr)
      continue;
    const std::optional<history::Head> head = options_.follower->head(host.pid);
    Watched& watched = watched_[host.pid];
    if (watched.head != head)
      watched = {.head = head, .since = now};
    still |= has_outstanding(*process) && now - watched.since >= options_.quiet_before_samples;
  }
  return still;
}

void Prober::sample_stacks(const std::vector<Host>& hosts) {
  for (const Host& host : hosts) {
    if (host.ended)
      continue;
    const Clock::time_point deadline = Clock::now() + kStackLimit;
    for (const std::int32_t tid : issuers_of(process_of(options_.follower->run(), host), host.pid))
      sample_stack(host, tid, deadline);
  }
}

void Prober::sample_stack(const Host& host, std::int32_t tid, Clock::time_point deadline) {
  if (!os::sleeps_in_restartable_wait(host.pid, tid))
    return;
  const Result<std::vector<os::NativeFrame>> frames = sampler_.sample(host.pid, tid, deadline);
  if (!frames) {
    if (!std::exchange(refusal_noted_, true))
      record(Note{.at_ns = now_ns(), .text = frames.error().what});
    return;
  }
  StackSample sample{.at_ns = now_ns(), .rank = host.rank, .pid = host.pid, .tid = tid};
  for (const os::NativeFrame& frame : *frames)
    sample.frames.push_back(
        {.module = frame.module, .offset = frame.offset, .function = frame.function});
  record(sample);
}

// The head must be the same before and after the threads are read, else the reading is of no
// instant.
void Prober::read_states(const std::vector<Host>& hosts) {
  for (const Host& host : hosts) {
    if (host.ended)
      continue;
    const std::optional<history::Head> before = options_.follower->head(host.pid);
    StateSample sample{.at_ns = now_ns(), .rank = host.rank, .pid = host.pid};
    for (os::ThreadStat& thread : os::read_threads(host.pid)) {
      sample.threads.push_back({.tid = thread.tid,
                                .state = thread.state,
                                .wchan = std::move(thread.wchan),
                                .context_switches = thread.context_switches,
                                .cpu_ns = thread.cpu_ns});
    }
    if (before != options_.follower->head(host.pid))
      continue;
    sample.head = before ? before->records : 0;
    record(sample);
  }
}

}  // namespace lockstep::launch
