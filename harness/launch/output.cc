#include "harness/launch/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "harness/base/check.h"
#include "harness/base/clock.h"
#include "harness/os/poll_until.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kPendingMax = std::size_t{1} << 20;
constexpr std::size_t kTailMax = std::size_t{64} << 10;
// Of what is in a pipe when nobody of the job writes any more; who was let live may go on writing.
constexpr int kLastReads = 32;
// The rest of a line: with unbuffered output it comes by itself, and other ranks speak as well.
constexpr std::chrono::milliseconds kLineMayTake{30};
constexpr std::chrono::milliseconds kSlice{100};

bool open_pipe(UniqueFd& reading, UniqueFd& writing) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return false;
  reading = UniqueFd(ends[0]);
  writing = UniqueFd(ends[1]);
  return true;
}

// A terminal of the size of `like`, which leaves every byte as it is: ours will do what it does.
bool open_terminal(int like, UniqueFd& reading, UniqueFd& writing) {
  reading = UniqueFd(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  std::array<char, 64> name{};
  if (!reading || ::grantpt(reading.get()) != 0 || ::unlockpt(reading.get()) != 0 ||
      ::ptsname_r(reading.get(), name.data(), name.size()) != 0)
    return false;
  writing = UniqueFd(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios settings{};
  if (!writing || ::tcgetattr(writing.get(), &settings) != 0)
    return false;
  settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);
  settings.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  winsize size{};
  if (::ioctl(like, TIOCGWINSZ, &size) == 0)
    ::ioctl(writing.get(), TIOCSWINSZ, &size);
  return ::tcsetattr(writing.get(), TCSANOW, &settings) == 0;
}

}  // namespace

Output::Output(std::uint64_t log_bytes_max) : log_bytes_max_(log_bytes_max) {
  outlets_[0].fd = STDOUT_FILENO;
  outlets_[1].fd = STDERR_FILENO;
  // A reader that goes away must not take us along. Blocked and not ignored: what is ignored would
  // be so in the ranks too.
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
}

Result<UniqueFd> Output::add(const std::string& log, int to) {
  Result<LogFile> file = LogFile::create(log, log_bytes_max_);
  if (!file)
    return file.error();
  UniqueFd reading, writing;
  if (!(::isatty(to) == 1 ? open_terminal(to, reading, writing) : open_pipe(reading, writing)))
    return Error{Error::Kind::kEnvironment,
                 fmt::format("cannot make a pipe: {}", std::strerror(errno)), ""};
  LS_CHECK(::fcntl(reading.get(), F_SETFL, O_NONBLOCK) == 0);
  const std::size_t outlet = to == STDERR_FILENO ? 1 : 0;
  streams_.push_back({.pipe = std::move(reading), .log = std::move(*file), .outlet = outlet});
  return writing;
}

bool Output::Outlet::full() const { return pending.size() >= kPendingMax; }

// Our descriptor may be shared with others, so that it cannot be made non-blocking. A pipe that is
// ready takes PIPE_BUF bytes at once.
void Output::Outlet::write_some() {
  while (!pending.empty() && !closed &&
         os::poll_until(fd, POLLOUT, std::chrono::steady_clock::now())) {
    const ssize_t put =
        ::write(fd, pending.data(), std::min<std::size_t>(pending.size(), PIPE_BUF));
    if (put < 0 && errno == EINTR)
      continue;
    closed = put < 0;
    pending.erase(0, static_cast<std::size_t>(std::max<ssize_t>(put, 0)));
  }
  if (closed)
    pending.clear();
}

void Output::wait_for(std::vector<pollfd>& entries) const {
  for (const Stream& stream : streams_) {
    if (stream.pipe && !outlets_[stream.outlet].full())
      entries.push_back({.fd = stream.pipe.get(), .events = POLLIN, .revents = 0});
  }
  for (const Outlet& outlet : outlets_) {
    if (!outlet.pending.empty())
      entries.push_back({.fd = outlet.fd, .events = POLLOUT, .revents = 0});
  }
}

// True if there may be more.
bool Output::read_some(Stream& stream) {
  std::array<char, 65536> chunk;
  const ssize_t got = ::read(stream.pipe.get(), chunk.data(), chunk.size());
  if (got <= 0) {
    if (got == 0 || (errno != EAGAIN && errno != EINTR))
      stream.pipe.reset();
    return got < 0 && errno == EINTR;
  }
  const std::string_view text(chunk.data(), static_cast<std::size_t>(got));
  if (::write(stream.log.fd(), text.data(), text.size()) >= 0)
    stream.log.bound();
  stream.last_read_ns = now_ns();
  stream.read_at = Clock::now();
  stream.tail += text;
  if (stream.tail.size() > 2 * kTailMax)
    stream.tail.erase(0, stream.tail.size() - kTailMax);
  stream.unfinished += text;
  const std::size_t lines = stream.unfinished.rfind('\n') + 1;
  const bool long_line = stream.unfinished.size() - lines >= PIPE_BUF;
  pass_on(stream, long_line ? stream.unfinished.size() : lines);
  return true;
}

void Output::pass_on(Stream& stream, std::size_t size) {
  outlets_[stream.outlet].pending.append(stream.unfinished, 0, size);
  stream.unfinished.erase(0, size);
}

Output::Clock::time_point Output::due() const {
  Clock::time_point first = Clock::time_point::max();
  for (const Stream& stream : streams_) {
    if (!stream.unfinished.empty())
      first = std::min(first, stream.read_at + kLineMayTake);
  }
  return first;
}

void Output::pump() {
  for (Stream& stream : streams_) {
    Outlet& outlet = outlets_[stream.outlet];
    while (stream.pipe && !outlet.full() && read_some(stream)) {
    }
    if (!stream.pipe || Clock::now() >= stream.read_at + kLineMayTake)
      pass_on(stream, stream.unfinished.size());
    outlet.write_some();
    if (outlet.closed)
      stream.pipe.reset();  // The rank hears of it as it would have without us.
  }
  for (Outlet& outlet : outlets_)
    outlet.write_some();
}

void Output::finish(const std::function<bool()>& gives_up) {
  for (Stream& stream : streams_) {  // However full its outlet is.
    for (int reads = 0; stream.pipe && reads < kLastReads && read_some(stream); ++reads) {
    }
    pass_on(stream, stream.unfinished.size());
  }
  for (Outlet& outlet : outlets_) {
    while (!outlet.pending.empty() && !gives_up()) {
      os::poll_until(outlet.fd, POLLOUT, Clock::now() + kSlice);
      outlet.write_some();
    }
  }
}

}  // namespace lockstep::launch
