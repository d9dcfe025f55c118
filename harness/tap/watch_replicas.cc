// Replicas are seen at the collectives that DistributedDataParallel itself makes: of its frame on
// this thread's stack the watch reads what the method was called on.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "harness/python/variables.h"
#include "harness/tap/passing.h"
#include "harness/tap/watch_state.h"

namespace lockstep::tap {
namespace {

/// A replica in one of its own methods. Its frame keeps it alive.
struct Replica {
  void* object{};
  bool being_made{};
  bool sends_buffers{};
};

void* unwrapped(std::uint64_t object) {
  std::uint64_t type = 0;
  if (object != 0 && python::load(Direct{}, object + python::kObjectType, type) &&
      type == reinterpret_cast<std::uint64_t>(watch->python.cell_type))
    python::load(Direct{}, object + kCellContents, object);
  return reinterpret_cast<void*>(object);
}

Replica replica_of_this_thread() {
  constexpr int kFramesMax = 8;
  const python::Layout& layout = recorder->python_sites.layout();
  Replica replica;
  std::uint64_t found = 0;
  int frames = 0;
  recorder->python_sites.for_each_frame([&](std::uint64_t frame, std::uint64_t code) {
    char name[64];
    const bool named =
        python::text_at(layout, Direct{}, code + layout.code_name, name, sizeof name) != 0;
    const auto is = [&](const char* other) { return named && std::strcmp(name, other) == 0; };
    replica.being_made = is("DistributedDataParallel.__init__");
    replica.sends_buffers = replica.sends_buffers || is("DistributedDataParallel._sync_buffers");
    if (!replica.being_made && !is("DistributedDataParallel._pre_forward"))
      return ++frames < kFramesMax;
    python::for_each_local(layout, Direct{}, frame, code, 1,
                           [&](std::uint64_t, std::uint64_t object) { found = object; });
    return false;
  });
  replica.object = unwrapped(found);
  return replica;
}

/// What Dynamo has the interpreter call for each frame; returns what it was. Null: there is none.
void* set_eval_frame(void* callback) {
  const PythonApi& python = watch->python;
  if (watch->set_eval_frame == nullptr)
    return nullptr;
  void* const argument = python.new_tuple(1);
  python.keep(callback);
  python.set_item(argument, 0, callback);
  void* const before = python.call(watch->set_eval_frame, argument, nullptr);
  python.release(argument);
  if (before == nullptr)
    python.forget_error();
  return before;
}

/// Of a group, its forwards with collectives: the first ones, then the 16th, the 32nd ... All
/// members count alike.
bool forward_is_due(std::uint32_t group) {
  constexpr std::uint32_t kGroupsMax = 64;
  constexpr std::uint64_t kFirst = 8;
  static std::atomic<std::uint64_t> counts[kGroupsMax];
  const std::uint64_t count = group < kGroupsMax ? ++counts[group] : 0;
  return count != 0 && (count <= kFirst || (count & (count - 1)) == 0);
}

/// What the interpreter is to call when the collective has returned.
struct Sent {
  void* replica{};
  std::uint32_t group{};
};
std::atomic<bool> sending;  // From the first collective of a forward until the call.
Sent sent;

/// (replica, a number, another one)
void call_with(void* function, void* replica, std::uint32_t first, std::uint32_t second) {
  const PythonApi& python = watch->python;
  void* const arguments = python.new_tuple(3);
  python.keep(replica);
  python.set_item(arguments, 0, replica);
  python.set_item(arguments, 1, python.new_number(first));
  python.set_item(arguments, 2, python.new_number(second));
  void* const result = call_script(function, arguments);
  python.release(arguments);
  if (result != nullptr)
    python.release(result);
  else
    python.forget_error();
}

/// Called by the interpreter in its main thread, which is back from the collective.
int buffers_are_sent(void*) {
  if (watch->file.writes())
    call_with(watch->sent, sent.replica, sent.group,
              static_cast<std::uint32_t>(recorder->writer->issued_on({sent.group})));
  watch->python.release(sent.replica);
  sending.store(false);
  return 0;
}

void look_when_sent(void* replica, std::uint32_t group) {
  sent = {replica, group};
  watch->python.keep(replica);
  if (watch->python.add_pending_call(&buffers_are_sent, nullptr) == 0)
    return;
  watch->python.release(replica);
  sending.store(false);
}

}  // namespace

void* call_script(void* function, void* arguments) {
  const PythonApi& python = watch->python;
  void* const before = set_eval_frame(python.none);
  void* const result = python.call(function, arguments, nullptr);
  if (before != nullptr && before != python.none) {
    void *type = nullptr, *value = nullptr, *trace = nullptr;
    python.fetch_error(&type, &value, &trace);
    python.release(set_eval_frame(before));
    python.restore_error(type, value, trace);
  }
  python.release(before);
  return result;
}

void look_for_replica(const Groups::Known& known, const Call& call) {
  const PythonApi& python = watch->python;
  if (python.this_thread() == nullptr)
    return;
  const Replica replica = replica_of_this_thread();
  if (replica.object == nullptr)
    return;
  const std::uint32_t group = known.handle.load(std::memory_order_relaxed);
  const bool in_main = syscall(SYS_gettid) == getpid();
  if (!replica.being_made && (!in_main || sending.exchange(true)))
    return;
  if (!replica.being_made && !forward_is_due(group)) {
    sending.store(false);
    return;
  }
  const int state = python.ensure();
  call_with(watch->made, replica.object, group, replica.being_made ? call.issue.site : 0);
  if (replica.sends_buffers)
    look_when_sent(replica.object, group);
  else if (!replica.being_made)
    sending.store(false);
  python.release_state(state);
}

}  // namespace lockstep::tap
