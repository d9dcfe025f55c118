#include "harness/launch/host_job.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "harness/launch/host_job_impl.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kReadyEventsMax = 1024;
constexpr auto kLogCheckEvery = std::chrono::milliseconds(1'000);
constexpr auto kCloseLimit =
    std::chrono::seconds(2);  // from closing the conversation to the process's end
constexpr auto kPausedAfter = std::chrono::milliseconds(1'000);

std::string log_name(const HostSpec& spec) {
  return spec.rank ? std::to_string(spec.rank->value) : "reference";
}

}  // namespace

HostJob::Impl::Impl(Supervisor& supervisor, HostJobOptions options)
    : supervisor_(supervisor),
      options_(std::move(options)),
      loop_(supervisor, options_),
      family_(options_.journal) {}

Result<void> HostJob::Impl::start(const std::vector<HostSpec>& specs) {
  std::error_code error;
  std::filesystem::create_directories(options_.logs_directory, error);
  if (error) {
    return Error{Error::Kind::kIo,
                 fmt::format("cannot create {}: {}", options_.logs_directory, error.message()), ""};
  }
  for (const HostSpec& spec : specs) {
    if (const std::string why = supervisor_.interrupted(); !why.empty())
      return Error{Error::Kind::kInterrupted, why, ""};
    if (Result<void> started = start_host(spec); !started)
      return started;
  }
  loop_.prober().something_happened();
  return {};
}

Result<void> HostJob::Impl::start_host(const HostSpec& spec) {
  const std::string base = options_.logs_directory + "/" + log_name(spec);
  Result<LogFile> out = LogFile::create(base + ".out", options_.log_bytes_max);
  Result<LogFile> err = LogFile::create(base + ".err", options_.log_bytes_max);
  if (!out || !err)
    return out ? err.error() : out.error();
  Result<ForkedHost> forked = spec.warm->fork_host(spec.environment, out->fd(), err->fd());
  if (!forked)
    return forked.error();
  hosts_.push_back(HostProcess{
      .job = {.role = spec.role, .rank = spec.rank, .process = std::move(forked->process)},
      .conversation = Conversation(std::move(forked->conversation)),
      .out = std::move(*out),
      .err = std::move(*err)});
  const Host shown = shown_.emplace_back(hosts_.back().shown());
  record(ProcessStart{.at_ns = now_ns(), .role = shown.role, .rank = shown.rank, .pid = shown.pid});
  return {};
}

Result<void> HostJob::Impl::send(std::size_t host, std::string_view line) {
  LS_CHECK(host < hosts_.size());
  HostProcess& target = hosts_[host];
  if (!target.job.lives()) {
    return Error{
        Error::Kind::kHost,
        fmt::format("process {} {}", target.job.process.pid(), target.job.ended->to_string()), ""};
  }
  target.conversation.queue(line);
  target.conversation.write_some();
  loop_.prober().something_happened();
  return {};
}

Event HostJob::Impl::wait(Clock::time_point deadline) {
  while (true) {
    if (std::optional<Event> event = next_event(deadline))
      return std::move(*event);
    const Clock::time_point until = next_wake(deadline);
    poll_once(until);
    // Somebody stopped us, or the machine slept: time in which nobody could answer us does not
    // count.
    const auto late = Clock::now() - until;
    if (late > kPausedAfter && deadline < Clock::time_point::max() - late)
      deadline += late;
  }
}

std::optional<Event> HostJob::Impl::next_event(Clock::time_point deadline) {
  if (std::optional<std::string> why = loop_.new_interrupt()) {
    record_act("interrupted", *why);
    return Event{.kind = Event::Kind::kInterrupted, .text = std::move(*why)};
  }
  for (std::size_t i = 0; i < hosts_.size() && ready_.empty(); ++i) {
    take_end(i);
    check_closed(i);
  }
  if (!ready_.empty()) {
    Event event = std::move(ready_.front());
    ready_.pop_front();
    return event;
  }
  if (Clock::now() >= deadline) {
    loop_.prober().look(watched());  // What they do instead.
    record_act("deadline", "no answer in time");
    return Event{.kind = Event::Kind::kDeadline};
  }
  if (Clock::now() - logs_checked_ >= kLogCheckEvery)
    bound_logs();
  if (std::optional<std::string> reason = loop_.probe([this] { return watched(); }))
    return Event{.kind = Event::Kind::kStop, .text = std::move(*reason)};
  return std::nullopt;
}

HostJob::Impl::Clock::time_point HostJob::Impl::next_wake(Clock::time_point deadline) const {
  Clock::time_point wake =
      std::min({deadline, loop_.prober().due(), logs_checked_ + kLogCheckEvery});
  for (const HostProcess& host : hosts_) {
    if (host.job.lives() && host.conversation.closed_at())
      wake = std::min(wake, *host.conversation.closed_at() + kCloseLimit);
  }
  return wake;
}

void HostJob::Impl::poll_once(Clock::time_point until) {
  std::vector<const os::ProcessHandle*> living;
  std::vector<pollfd> conversations;
  std::vector<std::size_t> owners;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const HostProcess& host = hosts_[i];
    if (!host.job.lives())
      continue;
    living.push_back(&host.job.process);
    if (!host.conversation.readable())
      continue;
    const int output = host.conversation.has_output() ? POLLOUT : 0;
    conversations.push_back({.fd = host.conversation.fd(),
                             .events = static_cast<short>(POLLIN | output),
                             .revents = 0});
    owners.push_back(i);
  }
  if (!loop_.wait(living, conversations, until))
    return;
  for (std::size_t e = 0; e < conversations.size(); ++e) {
    if (conversations[e].revents == 0)
      continue;
    hosts_[owners[e]].conversation.write_some();
    read_lines(owners[e]);
  }
}

void HostJob::Impl::read_lines(std::size_t host) {
  std::vector<std::string> lines;
  const Result<bool> more = hosts_[host].conversation.read_some(lines);
  for (std::string& line : lines)
    ready_.push_back({.kind = Event::Kind::kLine, .host = host, .text = std::move(line)});
  if (!more)
    ready_.push_back({.kind = Event::Kind::kProtocol, .host = host, .text = more.error().what});
  if (!lines.empty())
    loop_.prober().something_happened();
}

// A rank's death is its pidfd. What it said before is delivered first.
void HostJob::Impl::take_end(std::size_t index) {
  HostProcess& host = hosts_[index];
  if (!host.job.lives() || !host.job.process.ended())
    return;
  while (host.conversation.readable() && ready_.size() < kReadyEventsMax) {
    std::vector<std::string> lines;
    const Result<bool> more = host.conversation.read_some(lines);
    for (std::string& line : lines)
      ready_.push_back({.kind = Event::Kind::kLine, .host = index, .text = std::move(line)});
    if (!more || !*more)
      break;
  }
  launch::take_end(host.job, options_.journal);
  shown_[index] = host.shown();
  ready_.push_back({.kind = Event::Kind::kEnded, .host = index, .status = *host.job.ended});
  loop_.prober().something_happened();
}

void HostJob::Impl::check_closed(std::size_t index) {
  HostProcess& host = hosts_[index];
  const auto closed_at = host.conversation.closed_at();
  if (!host.job.lives() || !closed_at || Clock::now() < *closed_at + kCloseLimit)
    return;
  host.conversation.forget_close();
  ready_.push_back({.kind = Event::Kind::kProtocol,
                    .host = index,
                    .text = fmt::format("process {} closed its conversation and lives on",
                                        host.job.process.pid())});
}

void HostJob::Impl::bound_logs() {
  logs_checked_ = Clock::now();
  for (HostProcess& host : hosts_) {
    for (LogFile* log : {&host.out, &host.err}) {
      if (log->bound()) {
        record(Note{
            .at_ns = now_ns(),
            .text = fmt::format("{} was cut at {} bytes", log->path(), options_.log_bytes_max)});
      }
    }
  }
}

void HostJob::Impl::record_act(const char* action, const std::string& reason) {
  record(Acted{.at_ns = now_ns(), .action = action, .reason = reason});
}

std::vector<Watched> HostJob::Impl::watched() const {
  std::vector<Watched> living;
  for (const HostProcess& host : hosts_) {
    if (host.job.lives())
      living.push_back({.rank = host.job.rank, .id = host.job.process.id()});
  }
  return living;
}

void HostJob::Impl::look_at_family() {
  std::vector<Watched> known;
  for (const HostProcess& host : hosts_)
    known.push_back({.rank = host.job.rank, .id = host.job.process.id()});
  family_.look(known);
}

EndReport HostJob::Impl::end(const std::string& reason, How how) {
  ended_ = true;
  std::vector<JobProcess*> processes;
  for (HostProcess& host : hosts_)
    processes.push_back(&host.job);
  JobEnding ending(supervisor_, options_.journal, std::move(processes), family_.lineage());
  if (how == How::kTerm)
    ending.ask(reason, options_.grace);
  EndReport report = ending.kill(reason);
  family_.settle_objects(/*write_down=*/true);
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    shown_[i] = hosts_[i].shown();
  bound_logs();
  return report;
}

HostJob::HostJob(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HostJob::~HostJob() {
  if (!impl_->ended())
    impl_->end("the case is over", How::kKill);
}

Result<std::unique_ptr<HostJob>> HostJob::start(Supervisor& supervisor, HostJobOptions options,
                                                const std::vector<HostSpec>& specs) {
  auto impl = std::make_unique<Impl>(supervisor, std::move(options));
  const Result<void> started = impl->start(specs);
  // Its destructor ends what was started before something failed.
  std::unique_ptr<HostJob> job(new HostJob(std::move(impl)));
  if (!started)
    return started.error();
  return job;
}

const std::vector<Host>& HostJob::hosts() const { return impl_->hosts(); }
Result<void> HostJob::send(std::size_t host, std::string_view line) {
  return impl_->send(host, line);
}
Event HostJob::wait(std::chrono::steady_clock::time_point deadline) {
  return impl_->wait(deadline);
}
void HostJob::look_at_family() { impl_->look_at_family(); }
EndReport HostJob::end(const std::string& reason, How how) { return impl_->end(reason, how); }

}  // namespace lockstep::launch
