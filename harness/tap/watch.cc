#include "harness/tap/watch.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "harness/tap/operation.h"
#include "harness/tap/passing.h"
#include "harness/tap/watch_state.h"
#include "harness/tap/watched_tensors.h"

namespace lockstep::tap {

WatchState* watch = nullptr;

void write_unseen(const char* text) {
  const std::lock_guard<std::mutex> lock(watch->mutex);
  const std::size_t length = strnlen(text, 1000);
  auto* const record =
      watch->file.begin<history::WatchUnseenRecord>(history::WatchKind::kNotWatched, length);
  if (record == nullptr)
    return;
  record->at_ns = history::clock_ns(CLOCK_MONOTONIC);
  record->text_bytes = static_cast<std::uint32_t>(length);
  std::memcpy(record + 1, text, length);
  watch->file.commit(*record);
}

namespace {

using history::WatchEntry;
using history::WatchKind;

// --- What the script calls

void* arrive(void*, Arguments arguments, std::ptrdiff_t) {
  if (!watch->file.writes())
    return watch->python.new_number(0);
  history::WatchHeader& header = watch->file.header();
  __atomic_fetch_add(&header.steps, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&header.last_step_ns, history::clock_ns(CLOCK_MONOTONIC), __ATOMIC_RELAXED);
  return watch->python.new_number(
      static_cast<long long>(recorder->writer->issued_on({small(arguments[0])})));
}

void* now(void*, Arguments, std::ptrdiff_t) {
  return watch->python.new_number(static_cast<long long>(history::clock_ns(CLOCK_MONOTONIC)));
}

void* filled(void*, Arguments, std::ptrdiff_t) {
  return watch->python.new_real(watch->file.writes() ? watch->file.filled() : 1);
}

/// tensor(group, replica, site, name, tensor, flags) -> its id
void* define_tensor(void*, Arguments arguments, std::ptrdiff_t) {
  const char* const name = watch->python.text(arguments[3]);
  const at::Tensor tensor = tensor_of(watch->python, arguments[4]);
  if (name == nullptr || !tensor.defined() || !watch->file.writes())
    return no_value();
  const std::lock_guard<std::mutex> lock(watch->mutex);
  const std::size_t length = std::strlen(name);
  auto* const record = watch->file.begin<history::WatchTensorRecord>(WatchKind::kTensor, length);
  if (record == nullptr)
    return no_value();
  Counts counts;
  counts.add(tensor);
  const std::uint32_t flags = small(arguments[5]);
  const bool reduced = (flags & history::kIgnored) == 0 && (flags & history::kAtStart) != 0 &&
                       tensor.requires_grad();
  record->group = small(arguments[0]);
  record->replica = small(arguments[1]);
  record->site = small(arguments[2]);
  record->flags = flags | (reduced ? history::kReduced : 0U);
  record->numel = static_cast<std::uint64_t>(tensor.numel());
  record->dtype = static_cast<std::uint32_t>(counts.dtype);
  record->name_bytes = static_cast<std::uint32_t>(length);
  std::memcpy(record + 1, name, length);
  watch->file.commit(*record);
  return watch->python.new_number(watch->tensors++);
}

/// What is to be looked at of one parameter.
struct SeenParameter {
  WatchEntry entry{};
  at::Tensor value{}, gradient{};
  std::vector<at::Tensor> state{};
};

/// (id, flags, parameter, state)
SeenParameter seen_of(void* tuple) {
  const PythonApi& python = watch->python;
  SeenParameter seen;
  seen.entry.tensor = small(python.tuple_item(tuple, 0));
  seen.entry.flags |= small(python.tuple_item(tuple, 1)) & (history::kHooked | history::kAlone);
  seen.value = tensor_of(python, python.tuple_item(tuple, 2));
  if (seen.value.defined())
    seen.gradient = seen.value.unsafeGetTensorImpl()->grad();  // Which warns of nothing.
  void* const state = python.tuple_item(tuple, 3);
  for (std::ptrdiff_t i = 0; i < python.list_size(state); ++i)
    seen.state.push_back(tensor_of(python, python.list_item(state, i)));
  return seen;
}

/// [(settings, rate, [(id, ...)])]
std::vector<SeenParameter> all_seen(void* groups) {
  const PythonApi& python = watch->python;
  std::vector<SeenParameter> all;
  for (std::ptrdiff_t g = 0; g < python.list_size(groups); ++g) {
    void* const group = python.list_item(groups, g);
    const char* const settings = python.text(python.tuple_item(group, 0));
    const double rate = python.real(python.tuple_item(group, 1));
    void* const entries = python.tuple_item(group, 2);
    for (std::ptrdiff_t i = 0; i < python.list_size(entries); ++i) {
      SeenParameter& seen = all.emplace_back(seen_of(python.list_item(entries, i)));
      seen.entry.learning_rate = rate;
      seen.entry.settings =
          settings == nullptr ? 0 : history::hash_bytes(settings, std::strlen(settings));
    }
  }
  return all;
}

void look_at(const SeenParameter& seen, WatchEntry& entry) {
  entry = seen.entry;
  if (const auto digest = digest_of(seen.value)) {
    entry.value = digest->value;
    entry.flags |= history::kValueSeen | (digest->finite ? 0U : history::kValueNotFinite);
  }
  if (const auto digest = digest_of(seen.gradient)) {
    entry.gradient = digest->value;
    entry.flags |= history::kGradientSeen | (digest->finite ? 0U : history::kGradientNotFinite);
  }
  bool all = !seen.state.empty();
  for (const at::Tensor& tensor : seen.state) {
    const char* const bytes = bytes_of(tensor);
    bool finite = true;
    all = all && bytes != nullptr;
    if (bytes == nullptr)
      continue;
    entry.state = history::mix(
        entry.state,
        digest_of_bytes(bytes, static_cast<std::size_t>(tensor.numel()) * tensor.itemsize(),
                        exponents_of(tensor.scalar_type()), finite));
    entry.flags |= finite ? 0U : history::kStateNotFinite;
  }
  entry.flags |= all ? history::kStateSeen : 0U;
}

void write_point(std::vector<SeenParameter>& all, history::WatchPointRecord place) {
  const history::QuietCall quiet;
  const std::lock_guard<std::mutex> lock(watch->mutex);
  auto* const record = watch->file.begin<history::WatchPointRecord>(
      WatchKind::kPoint, all.size() * sizeof(WatchEntry));
  if (record == nullptr)
    return;
  place.head = record->head;
  *record = place;
  record->at_ns = history::clock_ns(CLOCK_MONOTONIC);
  record->count = static_cast<std::uint32_t>(all.size());
  auto* entry = reinterpret_cast<WatchEntry*>(record + 1);
  for (const SeenParameter& seen : all)
    look_at(seen, *entry++);
  watch->file.commit(*record);
}

/// point(group, optimizer, position, ordinal, step, groups)
void* look_at_point(void*, Arguments arguments, std::ptrdiff_t) {
  if (!watch->file.writes())
    return no_value();
  history::WatchPointRecord place{};
  place.group = small(arguments[0]);
  place.optimizer = small(arguments[1]);
  place.position = static_cast<std::uint64_t>(watch->python.number(arguments[2]));
  place.ordinal = small(arguments[3]);
  place.step = static_cast<std::uint64_t>(watch->python.number(arguments[4]));
  std::vector<SeenParameter> all = all_seen(arguments[5]);
  void* const thread = watch->python.save_thread();  // Other threads may go on meanwhile.
  write_point(all, place);
  for (const SeenParameter& seen : all)
    look_for_undefined(place.group, seen.gradient);
  const bool unread =
      std::any_of(all.begin(), all.end(), [](const auto& seen) { return !bytes_of(seen.value); });
  if (unread && !watch->told_unread.exchange(true))
    write_unseen("parameters that are not in memory of the CPU, or not side by side");
  watch->python.restore_thread(thread);
  return no_value();
}

/// tell(cost, steady since, steady until, interval)
void* tell(void*, Arguments arguments, std::ptrdiff_t) {
  if (!watch->file.writes())
    return no_value();
  const auto value = [&](int i) {
    return static_cast<std::uint64_t>(watch->python.number(arguments[i]));
  };
  history::WatchHeader& header = watch->file.header();
  ++header.watched;
  (header.steady_since_ns == 0 ? header.first_ns : header.steady_ns) += value(0);
  header.steady_since_ns = value(1);
  header.steady_until_ns = value(2);
  header.interval = value(3);
  return no_value();
}

void* unseen(void*, Arguments arguments, std::ptrdiff_t) {
  const char* const text = watch->python.text(arguments[0]);
  if (text != nullptr && watch->file.writes())
    write_unseen(text);
  return no_value();
}

// --- The way in

std::string text_of_file(const std::string& path) {
  std::string text;
  std::FILE* const file = std::fopen(path.c_str(), "re");
  char buffer[4096];
  for (std::size_t got = 0;
       file != nullptr && (got = std::fread(buffer, 1, sizeof buffer, file)) > 0;)
    text.append(buffer, got);
  if (file != nullptr)
    std::fclose(file);
  return text;
}

double budget() {
  const char* const text = std::getenv("LOCKSTEP_WATCH_BUDGET");
  const double share = text == nullptr ? 0 : std::strtod(text, nullptr);
  return share > 0 && share < 1 ? share : 0.01;
}

void* namespace_of_script() {
  static Method methods[] = {{"arrive", &guarded<&arrive>, kFastCall, nullptr},
                             {"now", &guarded<&now>, kFastCall, nullptr},
                             {"filled", &guarded<&filled>, kFastCall, nullptr},
                             {"tensor", &guarded<&define_tensor>, kFastCall, nullptr},
                             {"point", &guarded<&look_at_point>, kFastCall, nullptr},
                             {"tell", &guarded<&tell>, kFastCall, nullptr},
                             {"unseen", &guarded<&unseen>, kFastCall, nullptr}};
  const PythonApi& python = watch->python;
  void* const names = python.new_dictionary();
  const auto set = [&](const char* name, void* value) {
    if (value == nullptr)
      return;
    python.set_entry(names, name, value);
    python.release(value);
  };
  for (Method& method : methods)
    set(method.name, python.new_function(&method, nullptr, nullptr));
  for (Method& method : loader_methods())
    set(method.name, python.new_function(&method, nullptr, nullptr));
  set("BUDGET", python.new_real(budget()));
  return names;
}

bool evaluate(const std::string& path, void* names) {
  const PythonApi& python = watch->python;
  void* const code = python.compile(text_of_file(path).c_str(), "<lockstep watch>", kWholeFile);
  void* const result = code == nullptr ? nullptr : python.evaluate(code, names, names);
  if (python.error() != nullptr)
    python.forget_error();
  return result != nullptr;
}

void find_set_eval_frame() {
  const PythonApi& python = watch->python;
  void* found = python.entry(python.modules(), "torch._C");
  for (const char* const name : {"_dynamo", "eval_frame", "set_eval_frame"})
    found = found == nullptr ? nullptr : python.attribute(found, name);
  watch->set_eval_frame = found;
  if (found == nullptr && python.error() != nullptr)
    python.forget_error();
}

/// Called by the interpreter in its main thread, between two instructions of the program's.
int install(void*) {
  const history::QuietCall quiet;
  const PythonApi& python = watch->python;
  if (python.entry(python.modules(), "torch.optim.optimizer") == nullptr ||
      !watch->file.open(recorder->writer->path()))
    return 0;
  find_set_eval_frame();
  void* const names = namespace_of_script();
  const std::string folder = watch->script.substr(0, watch->script.rfind('/') + 1);
  bool whole = evaluate(watch->script, names);
  watch->made = whole ? python.entry(names, "made") : nullptr;  // They live in them.
  watch->sent = whole ? python.entry(names, "sent") : nullptr;
  whole = whole && evaluate(folder + "loaders.py", names);
  if (!whole)
    write_unseen(watch->made == nullptr ? "anything: the script of the watch did not run"
                                        : "loaders: the script of the watch did not run");
  __atomic_store_n(&recorder->watching, watch->made != nullptr, __ATOMIC_RELEASE);
  return 0;
}

bool is_reduction(history::Op op) {
  using history::Op;
  return op == Op::kAllReduce || op == Op::kAllReduceCoalesced || op == Op::kReduce ||
         op == Op::kReduceScatter || op == Op::kReduceScatterSingle ||
         op == Op::kReduceScatterCoalesced;
}

void write_non_finite(const Groups::Known& known, const Call& call) {
  constexpr std::uint32_t kTold = 256;
  if (watch->non_finite.fetch_add(1) >= kTold || !watch->file.writes())
    return;
  const std::lock_guard<std::mutex> lock(watch->mutex);
  auto* const record = watch->file.begin<history::WatchNonFiniteRecord>(WatchKind::kNonFinite, 0);
  if (record == nullptr)
    return;
  record->at_ns = history::clock_ns(CLOCK_MONOTONIC);
  record->group = known.handle.load(std::memory_order_relaxed);
  record->position = recorder->writer->issued_on({record->group});
  record->numel = call.issue.numel_in;
  record->site = call.issue.site;
  watch->file.commit(*record);
}

}  // namespace

void prepare_watch(const char* script) {
  if (script == nullptr || *script == 0 || !recorder->python)
    return;
  auto* const state = new WatchState;
  state->script = script;
  if (state->python.find())
    watch = state;
}

void begin_watch() {
  if (watch != nullptr && recorder->writer->begun() && !watch->asked.exchange(true))
    watch->python.add_pending_call(&install, nullptr);
}

c10::intrusive_ptr<Flight> watch_call(const Groups::Known& known, const Call& call) {
  if (is_reduction(call.issue.op) && call.input != nullptr) {
    if (!is_finite(*call.input))
      write_non_finite(known, call);
    look_at_handed_in(known, call);
  }
  look_for_replica(known, call);
  if (call.input == nullptr)
    return nullptr;
  look_for_undefined(known, call);
  return flight_of(known, call);
}

}  // namespace lockstep::tap
