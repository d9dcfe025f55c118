#include "harness/tap/passing.h"

#include <algorithm>

#include "harness/tap/device.h"
#include "harness/tap/known_stacks.h"
#include "harness/tap/watch.h"

namespace torch::autograd {
TORCH_API int get_current_graph_task_id();  // Of graph_task.h, which asks for much more.
}  // namespace torch::autograd

namespace lockstep::tap {

Recorder* recorder = nullptr;

namespace {

/// Which GPU the process works on, at its first tensor on one.
void tell_device(std::int32_t index) {
  CudaDevice device;
  if (!recorder->device_told.exchange(true) && ask_driver(index, device))
    recorder->writer->set_device(index, device.visible, device.uuid);
}

}  // namespace

__attribute__((noinline)) std::uint32_t call_site(std::uint32_t skip) {
  if (!recorder->sites)
    return 0;
  if (recorder->python) {
    const std::int32_t backward = torch::autograd::get_current_graph_task_id();
    if (const std::uint32_t site = recorder->python_sites.site(*recorder->writer, backward);
        site != 0)
      return site;
  }
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) + sizeof(void*);
  KnownNativeStack& known = KnownNativeStack::at(place);
  if (const std::uint32_t site = known.find(place); site != 0)
    return site;
  std::array<const void*, kReturnsMax> addresses;
  std::array<std::uintptr_t, kReturnsMax> places;
  const std::uint32_t count =
      return_addresses(addresses.data(), kReturnsMax, /*skip=*/1, places.data());
  const std::uint32_t ours = std::min(skip, count);
  const std::uint32_t site = recorder->writer->site(addresses.data() + ours, count - ours);
  known.keep(place, site, addresses.data(), places.data(), count);
  return site;
}

FutureSupport::Answer FutureSupport::known(const std::type_info& type) const {
  for (const Entry& entry : entries_) {
    if (entry.type.load(std::memory_order_acquire) == &type)
      return entry.answer.load(std::memory_order_relaxed);
  }
  return Answer::kNotAsked;
}

void FutureSupport::learn(const std::type_info& type, Answer answer) {
  for (Entry& entry : entries_) {
    const std::type_info* have = nullptr;
    if (!entry.type.compare_exchange_strong(have, &type, std::memory_order_acq_rel) &&
        have != &type)
      continue;
    entry.answer.store(answer, std::memory_order_relaxed);
    return;
  }
}

__attribute__((noinline)) Passing::Passing(Groups::Known& known, Call& call, std::uint32_t skip)
    : known_(known), on_device_(call.on_device), on_gpu_(call.gpu >= 0) {
  call.issue.site = call_site(skip + 1);
  if (__atomic_load_n(&recorder->watching, __ATOMIC_ACQUIRE))
    flight_ = watch_call(known, call);
  ticket_ = recorder->writer->issue({known.handle.load(std::memory_order_relaxed)}, call.issue);
  if (on_gpu_ && !recorder->device_told.load(std::memory_order_relaxed))
    tell_device(call.gpu);
}

Passing::~Passing() {
  if (failed_ || result_ == Result::kThere)
    recorder->writer->returned_completed(ticket_, failed_);
  else if (result_ == Result::kUntold)
    recorder->writer->returned_untold(ticket_);
  else
    recorder->writer->returned(ticket_);
  Groups::leave(known_);
}

void Passing::follow(const Future& future) {
  if (!future) {
    result_ = Result::kUntold;
  } else if (future->completed()) {
    failed_ = future->hasError();
    if (flight_ != nullptr)
      watch_landing(*flight_, failed_, /*shared=*/false);
  } else {
    result_ = Result::kLater;
    future->addCallback(
        [ticket = ticket_, flight = flight_](c10::ivalue::Future& done) {
          if (flight != nullptr)
            watch_landing(*flight, done.hasError(), c10::raw::intrusive_ptr::use_count(&done) > 1);
          recorder->writer->completed(ticket, done.hasError());
        },
        /*uses_future=*/false);
  }
}

}  // namespace lockstep::tap
