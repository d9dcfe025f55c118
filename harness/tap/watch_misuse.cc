// What is done with the tensor of a collective that is not done yet, and with what a reduce leaves
// where it has no result.
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "harness/tap/passing.h"
#include "harness/tap/watch_state.h"
#include "harness/tap/watched_tensors.h"

namespace lockstep::tap {

namespace {

/// What a reduce has left. By its bytes it is known again: another tensor may lie there later.
struct Left {
  const void* tensor{};
  std::uint64_t digest{};
  history::WatchMisuseRecord record{};
};

constexpr std::uint32_t kSites = 1024;  // Lines are told apart as far.

constexpr std::size_t kLeftMax = 8;
std::mutex left_mutex;
std::atomic<std::size_t> left_count;  // So that it costs nothing where nobody reduces.
std::array<std::unique_ptr<Left>, kLeftMax> left;
std::size_t left_next;

void write_misuse(history::WatchMisuseRecord told) {
  if (!watch->file.writes())
    return;
  const std::lock_guard<std::mutex> lock(watch->mutex);
  auto* const record =
      watch->file.begin<history::WatchMisuseRecord>(history::WatchKind::kMisuse, 0);
  if (record == nullptr)
    return;
  told.head = record->head;
  *record = told;
  record->at_ns = history::clock_ns(CLOCK_MONOTONIC);
  watch->file.commit(*record);
}

/// Of each line the first calls are enough.
bool is_looked_at(std::uint32_t site) {
  static std::atomic<std::uint32_t> calls[kSites];
  return calls[site % kSites].fetch_add(1, std::memory_order_relaxed) < history::kWatchCallsOfLine;
}

/// Whether somebody has ever had the future of a call of this line: he may have gone on before we
/// are told that it is done, and may have let go of it.
bool are_futures_taken(std::uint32_t site, bool shared) {
  static std::atomic<bool> taken[kSites];
  std::atomic<bool>& of_line = taken[site % kSites];
  if (shared)
    of_line.store(true, std::memory_order_relaxed);
  return of_line.load(std::memory_order_relaxed);
}

/// Measured: of these operations Gloo itself moves the counter of the tensor by nothing.
bool leaves_counter(const Call& call) {
  using history::Op;
  using history::ReduceOp;
  const ReduceOp how = call.issue.reduce_op;
  const bool plain = how == ReduceOp::kSum || how == ReduceOp::kMin || how == ReduceOp::kMax ||
                     how == ReduceOp::kProduct;
  return call.issue.op == Op::kBroadcast ||
         ((call.issue.op == Op::kAllReduce || call.issue.op == Op::kReduce) && plain);
}

/// What is in its tensor goes into the result, of every rank. (Of what is gathered the part of one
/// rank may be left alone.)
bool hands_on(history::Op op) {
  using history::Op;
  return op == Op::kAllReduce || op == Op::kReduce || op == Op::kReduceScatterSingle;
}

/// The entry of this tensor, if it holds what was left there; it is told once.
std::unique_ptr<Left> take_left(const at::Tensor& tensor) {
  if (left_count.load(std::memory_order_acquire) == 0 || !tensor.defined())
    return nullptr;
  const std::lock_guard<std::mutex> lock(left_mutex);
  for (std::unique_ptr<Left>& entry : left) {
    if (entry == nullptr || entry->tensor != tensor.unsafeGetTensorImpl())
      continue;
    std::unique_ptr<Left> found = std::move(entry);
    left_count.fetch_sub(1);
    const auto digest = digest_of(tensor);
    return digest && digest->value.digest == found->digest ? std::move(found) : nullptr;
  }
  return nullptr;
}

void keep_left(const Flight& flight, const at::Tensor& tensor) {
  const auto digest = digest_of(tensor);
  if (!digest || digest->value.digest == flight.digest || !(digest->value.norm > 0))
    return;  // It left it as it was.
  const std::lock_guard<std::mutex> lock(left_mutex);
  std::unique_ptr<Left>& entry = left[left_next++ % kLeftMax];
  if (entry == nullptr)
    left_count.fetch_add(1);
  entry = std::make_unique<Left>(
      Left{tensor.unsafeGetTensorImpl(), digest->value.digest, flight.record});
}

}  // namespace

c10::intrusive_ptr<Flight> flight_of(const Groups::Known& known, const Call& call) {
  const c10d::Backend* const backend = known.backend.load(std::memory_order_relaxed);
  if (backend == nullptr || call.on_device || !leaves_counter(call) ||
      !is_looked_at(call.issue.site))
    return nullptr;
  const at::Tensor& tensor = *call.input;
  const bool reduces_away =
      call.issue.op == history::Op::kReduce && call.issue.root != backend->getRank();
  const bool may_be_touched = call.issue.async && !tensor.is_view();
  if (!(reduces_away || may_be_touched) || tensor.is_inference() || bytes_of(tensor) == nullptr ||
      backend->getBackendName() != "gloo")
    return nullptr;
  auto flight = c10::make_intrusive<Flight>(WeakTensor(tensor.getIntrusivePtr()));
  flight->version = tensor.unsafeGetTensorImpl()->version_counter().current_version();
  flight->may_be_touched = may_be_touched;
  flight->is_undefined = reduces_away;
  if (reduces_away)
    flight->digest = digest_of(tensor)->value.digest;
  flight->record.what = history::WatchMisuse::kTouched;
  flight->record.group = known.handle.load(std::memory_order_relaxed);
  flight->record.position = recorder->writer->issued_on({flight->record.group});
  flight->record.numel = call.issue.numel_in;
  flight->record.site = call.issue.site;
  return flight;
}

void watch_landing(Flight& flight, bool failed, bool shared) {
  const bool taken = are_futures_taken(flight.record.site, shared);
  const c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> held = flight.tensor.lock();
  if (failed || !held)
    return;
  if (flight.may_be_touched && held->version_counter().current_version() != flight.version) {
    if (!taken)
      write_misuse(flight.record);
  } else if (flight.is_undefined) {
    flight.record.what = history::WatchMisuse::kUndefined;
    keep_left(flight, at::Tensor(held));
  }
}

void look_for_undefined(const Groups::Known& known, const Call& call) {
  if (!hands_on(call.issue.op))
    return;
  if (const auto found = take_left(*call.input)) {
    found->record.group = known.handle.load(std::memory_order_relaxed);
    found->record.later = call.issue.site;
    write_misuse(found->record);
  }
}

void look_for_undefined(std::uint32_t group, const at::Tensor& gradient) {
  if (const auto found = take_left(gradient)) {
    found->record.group = group;
    write_misuse(found->record);
  }
}

}  // namespace lockstep::tap
