// What recording costs the user's program, and how fast a history is read again.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <memory>
#include <thread>

#include "harness/history/reader.h"
#include "harness/history/writer.h"

namespace lockstep::history {
namespace {

/// A directory in tmpfs, as live histories have it, that goes away.
class Place {
 public:
  Place() {
    std::string form = (std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp") +
                       std::string("/lockstep-bench-XXXXXX");
    path_ = mkdtemp(form.data()) == nullptr ? "" : form;
  }
  ~Place() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  [[nodiscard]] std::unique_ptr<Writer> writer() const {
    WriterOptions options;
    options.directory = path_.c_str();
    return std::unique_ptr<Writer>(Writer::open(options));
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

GroupHandle group_of(Writer& writer) {
  GroupInfo info;
  info.name = "dp";
  info.size = 2;
  info.from_creation = true;
  return writer.define_group(info);
}

Issue call_of() {
  Issue call;
  call.op = Op::kAllReduce;
  call.dtype = DType::kFloat32;
  call.reduce_op = ReduceOp::kSum;
  call.numel_in = call.numel_out = 1;
  return call;
}

void clock_read(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(clock_ns(CLOCK_MONOTONIC));
}
BENCHMARK(clock_read);

/// A synchronous call: issued, then returned and completed at once (two clock reads).
void slot_issue_finish(benchmark::State& state) {
  const Place place;
  const auto writer = place.writer();
  const GroupHandle group = group_of(*writer);
  const Issue call = call_of();
  for (auto _ : state)
    writer->returned_completed(writer->issue(group, call));
}
BENCHMARK(slot_issue_finish);

/// An asynchronous call: issued, returned, completed (three clock reads).
void slot_issue_return_complete(benchmark::State& state) {
  const Place place;
  const auto writer = place.writer();
  const GroupHandle group = group_of(*writer);
  const Issue call = call_of();
  for (auto _ : state) {
    const Ticket ticket = writer->issue(group, call);
    writer->returned(ticket);
    writer->completed(ticket);
  }
}
BENCHMARK(slot_issue_return_complete);

/// The same from several threads, each in a group of its own.
void slot_threads(benchmark::State& state) {
  static std::unique_ptr<Place> place;
  static std::unique_ptr<Writer> writer;
  if (state.thread_index() == 0) {
    place = std::make_unique<Place>();
    writer = place->writer();
    for (int i = 0; i < state.threads(); ++i)
      group_of(*writer);
  }
  const Issue call = call_of();
  for (auto _ : state)
    writer->returned_completed(
        writer->issue({static_cast<std::uint32_t>(state.thread_index())}, call));
  if (state.thread_index() == 0) {
    writer.reset();
    place.reset();
  }
}
BENCHMARK(slot_threads)->Threads(2);

/// What a known native site of N frames adds.
void site_lookup(benchmark::State& state) {
  const Place place;
  const auto writer = place.writer();
  std::vector<const void*> pcs(static_cast<std::size_t>(state.range(0)),
                               reinterpret_cast<const void*>(&site_lookup));
  for (auto _ : state)
    benchmark::DoNotOptimize(writer->site(pcs.data(), static_cast<std::uint32_t>(pcs.size())));
}
BENCHMARK(site_lookup)->Arg(8)->Arg(32);

void open_file(benchmark::State& state) {
  const Place place;
  for (auto _ : state) {
    const auto writer = place.writer();
    std::filesystem::remove(writer->path());
  }
}
BENCHMARK(open_file)->Unit(benchmark::kMillisecond);

/// Four processes' full files.
void whole_reading(benchmark::State& state) {
  const Place place;
  for (int rank = 0; rank < 4; ++rank) {
    const auto writer = place.writer();
    const GroupHandle group = group_of(*writer);
    const Issue call = call_of();
    for (int i = 0; i < 400'000; ++i)
      writer->returned_completed(writer->issue(group, call));
    writer->close();
  }
  std::uint64_t calls = 0;
  for (auto _ : state) {
    for (const auto& entry : std::filesystem::directory_iterator(place.path())) {
      const auto read = read_process(std::move(*FileSource::open(entry.path().string())), "bench");
      calls += read->process.collectives.size();
    }
  }
  state.counters["calls/s"] =
      benchmark::Counter(static_cast<double>(calls), benchmark::Counter::kIsRate);
}
BENCHMARK(whole_reading)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace lockstep::history

BENCHMARK_MAIN();
