// The data that loops receive of a DataLoader, and what becomes of it: what is handed to the first
// reductions.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

#include "harness/tap/passing.h"
#include "harness/tap/watch_state.h"
#include "harness/tap/watched_tensors.h"

namespace lockstep::tap {
namespace {

/// Tells the script what a call of `arguments` came back with: (first argument, result, ended).
/// False: the program was interrupted meanwhile.
bool tell_script(void* then, void* first, void* result) {
  const PythonApi& python = watch->python;
  void* const told = python.new_tuple(3);
  python.keep(first);
  python.set_item(told, 0, first);
  python.keep(result == nullptr ? python.none : result);
  python.set_item(told, 1, result == nullptr ? python.none : result);
  python.set_item(told, 2, python.new_number(result == nullptr));
  void* const answer = call_script(then, told);
  python.release(told);
  if (answer != nullptr)
    python.release(answer);
  else if (python.error_is(*python.exception) != 0)
    python.forget_error();
  else
    return false;
  return true;
}

/// In the place of a method of the program's: calls the original, and tells the script. It is no
/// Python function, so that no frame of ours is in a traceback.
void* call_and_tell(void* self, Arguments arguments, std::ptrdiff_t count) {
  const PythonApi& python = watch->python;
  void* const given = python.new_tuple(count);
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    python.keep(arguments[i]);
    python.set_item(given, i, arguments[i]);
  }
  void* const result = python.call(python.tuple_item(self, 0), given, nullptr);
  python.release(given);
  const bool ended = result == nullptr && python.error_is(*python.stop_iteration) != 0;
  if (count < 1 || (result == nullptr && !ended) || !watch->file.writes())
    return result;
  void *type = nullptr, *value = nullptr, *trace = nullptr;
  if (ended)
    python.fetch_error(&type, &value, &trace);
  const bool goes_on = tell_script(python.tuple_item(self, 1), arguments[0], result);
  if (goes_on && ended) {
    python.restore_error(type, value, trace);
  } else if (!goes_on) {
    for (void* const object : {type, value, trace, result}) {
      if (object != nullptr)
        python.release(object);
    }
    return nullptr;
  }
  return result;
}

/// around(original, then) -> a method
void* around(void*, Arguments arguments, std::ptrdiff_t) {
  static Method method{"__next__", &call_and_tell, kFastCall, nullptr};
  const PythonApi& python = watch->python;
  void* const both = python.new_tuple(2);
  for (int i = 0; i < 2; ++i) {
    python.keep(arguments[i]);
    python.set_item(both, i, arguments[i]);
  }
  void* const function = python.new_function(&method, both, nullptr);
  python.release(both);
  void* const bound = function == nullptr ? nullptr : python.new_method(function);
  if (function != nullptr)
    python.release(function);
  return bound;
}

/// digest(tensor) -> of its bytes; 0 where it cannot be read
void* digest(void*, Arguments arguments, std::ptrdiff_t) {
  const auto digest = digest_of(tensor_of(watch->python, arguments[0]));
  const std::uint64_t value = digest ? digest->value.digest >> 1U : 0;  // No sign.
  return watch->python.new_number(static_cast<long long>(value));
}

/// epoch(loader, number, flags, received, batches, order, replicas, share, [digests], taken,
///       share_of, seed, subset, text)
void* write_epoch(void*, Arguments arguments, std::ptrdiff_t) {
  const PythonApi& python = watch->python;
  const char* const text = python.text(arguments[13]);
  if (text == nullptr || !watch->file.writes())
    return no_value();
  const std::lock_guard<std::mutex> lock(watch->mutex);
  const std::size_t length = strnlen(text, 1000);
  auto* const record =
      watch->file.begin<history::WatchEpochRecord>(history::WatchKind::kEpoch, length);
  if (record == nullptr)
    return no_value();
  const auto value = [&](int i) { return static_cast<std::uint64_t>(python.number(arguments[i])); };
  record->at_ns = history::clock_ns(CLOCK_MONOTONIC);
  record->loader = small(arguments[0]);
  record->epoch = small(arguments[1]);
  record->flags = small(arguments[2]);
  record->received = value(3);
  record->batches = value(4);
  record->order = value(5);
  record->replicas = small(arguments[6]);
  record->share = value(7);
  record->taken = small(arguments[9]);
  record->share_of = small(arguments[10]);
  record->seed = small(arguments[11]);
  record->subset = value(12);
  const auto digests = static_cast<std::size_t>(python.list_size(arguments[8]));
  for (std::size_t i = 0; i < std::min(digests, history::kWatchBatches); ++i) {
    record->digests[i] = static_cast<std::uint64_t>(
        python.number(python.list_item(arguments[8], static_cast<std::ptrdiff_t>(i))));
  }
  record->text_bytes = static_cast<std::uint32_t>(length);
  std::memcpy(record + 1, text, length);
  watch->file.commit(*record);
  return no_value();
}

constexpr std::uint32_t kGroupsMax = 64;
std::atomic<std::uint64_t> expecting{~0ULL};  // A bit for each group.
std::atomic<std::uint32_t> room{};            // For what is handed in before the next step.
constexpr std::uint32_t kRoom = 256;

/// The first, second, fourth ... of a group; all members count alike.
bool is_sampled(std::uint32_t group, const Call& call) {
  constexpr std::uint64_t kCountMax = 64, kNumelMin = 64;
  static std::atomic<std::uint64_t> counts[kGroupsMax];
  if (call.issue.numel_in < kNumelMin)
    return false;
  const std::uint64_t count = ++counts[group];
  return count <= kCountMax && (count & (count - 1)) == 0;
}

bool is_expected(std::uint32_t group) {
  return (expecting.load(std::memory_order_relaxed) >> group & 1U) != 0 &&
         room.fetch_add(1, std::memory_order_relaxed) < kRoom;
}

std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? history::kNoVersion
                               : tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

/// expect(group, whether): the next step that has its gradients from this group is watched
void* expect(void*, Arguments arguments, std::ptrdiff_t) {
  const std::uint32_t group = small(arguments[0]);
  if (group >= kGroupsMax)
    return no_value();
  room.store(0, std::memory_order_relaxed);
  if (watch->python.number(arguments[1]) != 0)
    expecting.fetch_or(1ULL << group);
  else
    expecting.fetch_and(~(1ULL << group));
  return no_value();
}

}  // namespace

std::span<Method> loader_methods() {
  static Method methods[] = {{"around", &guarded<&around>, kFastCall, nullptr},
                             {"digest", &guarded<&digest>, kFastCall, nullptr},
                             {"epoch", &guarded<&write_epoch>, kFastCall, nullptr},
                             {"expect", &guarded<&expect>, kFastCall, nullptr}};
  return methods;
}

void look_at_handed_in(const Groups::Known& known, const Call& call) {
  const std::uint32_t group = known.handle.load(std::memory_order_relaxed);
  if (group >= kGroupsMax || exponents_of(call.input->scalar_type()).mask == 0)
    return;
  const bool sampled = is_sampled(group, call);  // Counts, whatever is expected.
  if (!(is_expected(group) || sampled) || !watch->file.writes())
    return;
  const auto digest = digest_of(*call.input);
  const std::lock_guard<std::mutex> lock(watch->mutex);
  auto* const record =
      digest ? watch->file.begin<history::WatchHandedInRecord>(history::WatchKind::kHandedIn, 0)
             : nullptr;
  if (record == nullptr)
    return;
  record->at_ns = history::clock_ns(CLOCK_MONOTONIC);
  record->group = group;
  record->position = recorder->writer->issued_on({group});
  record->numel = call.issue.numel_in;
  record->value = digest->value;
  record->site = call.issue.site;
  record->version = version_of(*call.input);
  watch->file.commit(*record);
}

}  // namespace lockstep::tap
