// What the parts of the watch share: the interpreter, the file, and how the script calls us.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "harness/history/watch_writer.h"
#include "harness/tap/groups.h"
#include "harness/tap/operation.h"
#include "harness/tap/python_api.h"
#include "harness/tap/watch.h"

#pragma GCC visibility push(hidden)

namespace lockstep::tap {

/// Never destroyed, as the recorder.
struct WatchState {
  std::string script;
  PythonApi python{};
  void *made = nullptr, *sent = nullptr;  ///< Functions of the script's.
  void* set_eval_frame = nullptr;         ///< Of torch.
  std::mutex mutex{};                     ///< Of the file.
  history::WatchWriter file{};
  std::uint32_t tensors = 0;
  std::atomic<std::uint32_t> non_finite{};
  std::atomic<bool> asked{}, told_unread{};
};
extern WatchState* watch;  ///< Null: nobody asked for it.

using Arguments = void* const*;

void write_unseen(const char* text);

inline void* no_value() {
  watch->python.keep(watch->python.none);
  return watch->python.none;
}

inline std::uint32_t small(void* object) {
  return static_cast<std::uint32_t>(watch->python.number(object));
}

/// What is thrown in torch must not pass the interpreter.
template <auto kFunction>
void* guarded(void* self, Arguments arguments, std::ptrdiff_t count) {
  void* result = nullptr;
  try {
    result = kFunction(self, arguments, count);
  } catch (const std::exception& error) {
    if (watch->file.writes())
      write_unseen(error.what());
  }
  if (watch->python.error() != nullptr)
    watch->python.forget_error();
  return result == nullptr ? no_value() : result;
}

/// Calls a function of the script's, which Dynamo neither sees nor compiles; null: it raised.
void* call_script(void* function, void* arguments);

/// By the frames of this thread `call`, which is about to be issued, may be one of a replica that
/// is being made, or one by which buffers are sent to all.
void look_for_replica(const Groups::Known& known, const Call& call);

/// A tensor that is about to be handed to `call`, and may be changed meanwhile, or is of no use
/// after it; null: neither. Of Gloo on the CPU alone, whose own changes are known.
c10::intrusive_ptr<Flight> flight_of(const Groups::Known& known, const Call& call);

/// What a reduce left on a rank that is not its root is handed on: to `call`, which is about to be
/// issued, or as a gradient to an optimizer of `group`.
void look_for_undefined(const Groups::Known& known, const Call& call);
void look_for_undefined(std::uint32_t group, const at::Tensor& gradient);

/// What the script has for the data that loops receive (watch_data.cc).
std::span<Method> loader_methods();
/// A reduction of floating point numbers, which is about to be issued.
void look_at_handed_in(const Groups::Known& known, const Call& call);

}  // namespace lockstep::tap

#pragma GCC visibility pop
