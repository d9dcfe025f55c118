// What a collective costs with the tap: dispatch to a backend that does nothing and is done at
// once, with the completion told. Run it without arguments; it forks once per mode, because the tap
// begins once per process.
//
//   bare    no tap
//   tapped  slot, return and completion; call sites off
//   sites   the same with call sites
//
// The figures are minima over batches: on a shared machine everything else is noise.

#include <ATen/ATen.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "harness/tap/tap.h"

namespace {

using Tensors = std::vector<at::Tensor>;

class DoneWork : public c10d::Work {
 public:
  explicit DoneWork(c10::intrusive_ptr<c10::ivalue::Future> future) : future_(std::move(future)) {}
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class NoBackend : public c10d::Backend {
 public:
  NoBackend() : Backend(0, 1) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
    future_->markCompleted(c10::IValue(Tensors{at::ones({1})}));
  }
  const std::string getBackendName() const override { return "none"; }
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10::intrusive_ptr<c10d::Work> allreduce(Tensors&, const c10d::AllreduceOptions&) override {
    ++sequence_;
    return c10::make_intrusive<DoneWork>(future_);
  }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  uint64_t sequence_{};
};

// ns per all-reduce, the best of many batches.
double measure() {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(nullptr, 0, 1);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::make_intrusive<NoBackend>());
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  Tensors tensors{at::ones({1})};
  double best = std::numeric_limits<double>::max();
  for (int batch = 0; batch < 300; ++batch) {
    constexpr int kCalls = 1000;
    const auto begin = std::chrono::steady_clock::now();
    for (int call = 0; call < kCalls; ++call)
      group->allreduce(tensors);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / kCalls);
  }
  return best;
}

double measure_forked(const std::string& mode, const std::filesystem::path& directory) {
  int ends[2];
  if (::pipe(ends) != 0)
    std::abort();
  if (const pid_t pid = ::fork(); pid != 0) {
    double result = -1;
    if (::read(ends[0], &result, sizeof result) != sizeof result)
      std::fprintf(stderr, "%s: not measured\n", mode.c_str());
    ::waitpid(pid, nullptr, 0);
    return result;
  }
  if (mode != "bare" &&
      !lockstep::tap::start({.directory = directory.c_str(), .sites = mode == "sites"}))
    std::_Exit(1);
  const double result = measure();
  std::_Exit(::write(ends[1], &result, sizeof result) == sizeof result ? 0 : 1);
}

}  // namespace

int main() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lockstep-bench-XXXXXX").string();
  const std::filesystem::path directory = ::mkdtemp(pattern.data());
  const double bare = measure_forked("bare", directory);
  std::printf("bare    %7.1f ns\n", bare);
  for (const char* mode : {"tapped", "sites"}) {
    const double took = measure_forked(mode, directory);
    std::printf("%-7s %7.1f ns  (+%.1f)\n", mode, took, took - bare);
  }
  std::filesystem::remove_all(directory);
  return 0;
}
