// How long a single record may take while another process writes and fsyncs 2 GB to the disk:
// prints percentiles of issue + return + completion. Status 1 if p99.99 is above the limit. usage:
// history_latency LIVE_DIR DISK_DIR [GB] [LIMIT_US]
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "harness/history/writer.h"

namespace history = lockstep::history;

namespace {

[[noreturn]] void burden(const std::string& path, std::uint64_t bytes) {
  const std::vector<char> block(4U << 20, 'x');
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  for (std::uint64_t done = 0; fd >= 0 && done < bytes; done += block.size()) {
    if (::write(fd, block.data(), block.size()) != static_cast<ssize_t>(block.size()) ||
        ::fsync(fd) != 0)
      ::_exit(1);
  }
  ::unlink(path.c_str());
  ::_exit(fd >= 0 ? 0 : 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: history_latency LIVE_DIR DISK_DIR [GB] [LIMIT_US]\n");
    return 125;
  }
  const std::uint64_t bytes = (argc > 3 ? std::stoull(argv[3]) : 2) << 30;
  const double limit_us = argc > 4 ? std::stod(argv[4]) : 1000;
  history::WriterOptions options;
  options.directory = argv[1];
  const std::unique_ptr<history::Writer> writer(history::Writer::open(options));
  if (writer == nullptr)
    return 126;
  history::GroupInfo info;
  info.name = "dp";
  const history::GroupHandle group = writer->define_group(info);
  const std::string load = std::string(argv[2]) + "/lockstep-latency-load";
  const pid_t child = ::fork();
  if (child == 0)
    burden(load, bytes);
  history::Issue call;
  call.op = history::Op::kAllReduce;
  std::vector<std::uint32_t> nanoseconds;
  nanoseconds.reserve(200'000'000);
  int status = 0;
  const timespec pause{0, 2000};  // A training step is not a loop of nothing but collectives.
  while (nanoseconds.size() < nanoseconds.capacity() && ::waitpid(child, &status, WNOHANG) == 0) {
    for (int i = 0; i < 1000; ++i) {
      const std::uint64_t begin = history::clock_ns(CLOCK_MONOTONIC);
      const history::Ticket ticket = writer->issue(group, call);
      writer->returned(ticket);
      writer->completed(ticket);
      nanoseconds.push_back(static_cast<std::uint32_t>(history::clock_ns(CLOCK_MONOTONIC) - begin));
    }
    ::nanosleep(&pause, nullptr);
  }
  ::unlink(writer->path());
  std::sort(nanoseconds.begin(), nanoseconds.end());
  const auto at = [&](double share) {
    return nanoseconds[static_cast<std::size_t>(share *
                                                static_cast<double>(nanoseconds.size() - 1))] /
           1000.0;
  };
  std::printf("%zu records: p50 %.2f us, p99 %.2f us, p99.99 %.2f us, max %.2f us\n",
              nanoseconds.size(), at(0.5), at(0.99), at(0.9999), at(1.0));
  if (status != 0) {
    std::printf("the load could not be written to %s\n", argv[2]);
    return 2;
  }
  return at(0.9999) <= limit_us ? 0 : 1;
}
