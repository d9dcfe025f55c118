// The watch (`lockstep run --watch`): sees the values that lie between the collectives. What it
// does in the interpreter is harness/watch/watch.py; what that needs of tensors is here.
#pragma once

#include "harness/history/watch_format.h"
#include "harness/tap/groups.h"
#include "harness/tap/operation.h"

#pragma GCC visibility push(hidden)

namespace lockstep::tap {

/// Whether the environment asks for it; to be asked once, with the recorder there.
void prepare_watch(const char* script);

/// The process has a group: from now on there is something to watch.
void begin_watch();

/// Neither keeps its tensor alive nor counts as a reference to it: the program's own are counted by
/// autograd.
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

/// A tensor of a collective, from its issue until it is done.
struct Flight : c10::intrusive_ptr_target {
  explicit Flight(WeakTensor its) : tensor(std::move(its)) {}

  WeakTensor tensor;
  std::uint32_t version{};
  bool may_be_touched{};  ///< It is the whole of what its counter counts.
  bool is_undefined{};    ///< After it.
  std::uint64_t digest{};
  history::WatchMisuseRecord record{};  ///< Should there be something to tell.
};

/// A call on `known` is about to be issued: by the frames of this thread it may be one by which a
/// replica is made, and what is handed to it may not be finite. Null: its tensor is of no interest.
c10::intrusive_ptr<Flight> watch_call(const Groups::Known& known, const Call& call);

/// It is done; to be called before anybody who waits for its work is told. Who waits for its future
/// is told before: `shared` says that somebody has that.
void watch_landing(Flight& flight, bool failed, bool shared);

}  // namespace lockstep::tap

#pragma GCC visibility pop
