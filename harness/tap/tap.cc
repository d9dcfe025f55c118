#include "harness/tap/tap.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

#include <array>
#include <atomic>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <typeinfo>
#include <vector>

#include "harness/tap/device.h"
#include "harness/tap/groups.h"
#include "harness/tap/operation.h"
#include "harness/tap/python_groups.h"
#include "harness/tap/python_sites.h"
#include "harness/tap/stack.h"
#include "harness/tap/store_keys.h"

namespace torch::autograd {
TORCH_API int get_current_graph_task_id();  // Of graph_task.h, which asks for much more.
}  // namespace torch::autograd

namespace lockstep::tap {
namespace {

using history::Op;
using history::Ticket;

/// Everything the tap has. Never destroyed: other threads may still be in a call while the process
/// exits.
struct Tap {
  history::Writer* writer{};
  Groups* groups{};
  bool sites{};
  bool python{};  // Its frames can be read, and say more than return addresses.
  PythonSites python_sites{};
  std::atomic<bool> device_told{};
  std::vector<c10::RegistrationHandleRAII> registrations{};
};

Tap* the_tap = nullptr;

// Whether Works of one type have a future. Asking one that has none throws, so it is asked once.
class FutureSupport {
 public:
  enum class Answer : std::uint8_t { kNotAsked, kYes, kNo };

  [[nodiscard]] Answer known(const std::type_info& type) const {
    for (const Entry& entry : entries_) {
      if (entry.type.load(std::memory_order_acquire) == &type)
        return entry.answer.load(std::memory_order_relaxed);
    }
    return Answer::kNotAsked;
  }
  void learn(const std::type_info& type, Answer answer) {
    for (Entry& entry : entries_) {
      const std::type_info* have = nullptr;
      entry.answer.store(answer, std::memory_order_relaxed);
      if (entry.type.compare_exchange_strong(have, &type, std::memory_order_acq_rel) ||
          have == &type)
        return;
    }
  }

 private:
  struct Entry {
    std::atomic<const std::type_info*> type{};
    std::atomic<Answer> answer{};
  };
  std::array<Entry, 4> entries_{};
};

/// Of the thread that calls; the innermost `skip` native frames are ours.
__attribute__((noinline)) std::uint32_t call_site(std::uint32_t skip) {
  if (!the_tap->sites)
    return 0;
  if (the_tap->python) {
    const std::int32_t backward = torch::autograd::get_current_graph_task_id();
    if (const std::uint32_t site = the_tap->python_sites.site(*the_tap->writer, backward);
        site != 0)
      return site;
  }
  std::array<const void*, history::kFramesMax> addresses;
  const std::uint32_t count =
      return_addresses(addresses.data(), history::kFramesMax, /*skip=*/skip + 1);
  return the_tap->writer->site(addresses.data(), count);
}

/// Which GPU the process works on, at its first tensor on one.
void tell_device(std::int32_t index) {
  CudaDevice device;
  if (!the_tap->device_told.exchange(true) && ask_driver(index, device))
    the_tap->writer->set_device(index, device.visible, device.uuid);
}

/// Of this group's collectives on a GPU the future tells when they are done: Gloo works on the
/// host. (A backend that puts them on a stream tells no more than that this has been done.)
bool works_on_host(c10d::ProcessGroup& group) {
  try {
    return group.getBackend(c10::DeviceType::CUDA)->getBackendName() == "gloo";
  } catch (const std::exception&) {
    return false;  // None of its backends is for GPUs.
  }
}

/// The kernel of one operator.
class Kernel : public c10::OperatorKernel {
 public:
  explicit Kernel(Operation operation) : operation_(std::move(operation)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  struct Passed;
  /// The future that tells when `result` is there; null if nothing will tell.
  c10::intrusive_ptr<c10::ivalue::Future> future_of(const c10::IValue& result,
                                                    const Operation::Call& call,
                                                    c10d::ProcessGroup& group);

  Operation operation_;
  FutureSupport futures_{};
};

// The return of a call, also by exception.
struct Kernel::Passed {
  Groups::Known* known{};
  c10d::ProcessGroup* group{};
  Ticket ticket{};
  enum class Result : std::uint8_t { kThere, kUntold, kLater } result{Result::kThere};
  bool failed{true};
  ~Passed() {
    if (failed || result == Result::kThere)
      the_tap->writer->returned_completed(ticket, failed);
    else if (result == Result::kUntold)
      the_tap->writer->returned_untold(ticket);
    else
      the_tap->writer->returned(ticket);
    Groups::leave(*known, *group);
  }
};

void Kernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack* stack) {
  const c10::DispatchKeySet below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
  const c10::IValue* const arguments =
      stack->data() + (stack->size() - operation_.argument_count());
  c10d::ProcessGroup* const group = operation_.group(arguments);
  Groups::Known* const known = group == nullptr ? nullptr : the_tap->groups->enter(*group);
  if (known == nullptr) {
    op.redispatchBoxed(below, stack);
    return;
  }
  Operation::Call call = operation_.read(arguments);
  call.issue.site = call_site(/*skip=*/1);
  Passed passed{known, group};
  passed.ticket =
      the_tap->writer->issue({known->handle.load(std::memory_order_relaxed)}, call.issue);
  if (call.gpu >= 0 && !the_tap->device_told.load(std::memory_order_relaxed))
    tell_device(call.gpu);
  op.redispatchBoxed(below, stack);
  passed.failed = false;
  if (!operation_.returns_work())
    return;
  const auto future = stack->empty() ? nullptr : future_of(stack->back(), call, *group);
  if (!future) {
    passed.result = Passed::Result::kUntold;
  } else if (future->completed()) {
    passed.failed = future->hasError();
  } else {
    passed.result = Passed::Result::kLater;
    future->addCallback(
        [ticket = passed.ticket](c10::ivalue::Future& done) {
          the_tap->writer->completed(ticket, done.hasError());
        },
        /*uses_future=*/false);
  }
}

c10::intrusive_ptr<c10::ivalue::Future> Kernel::future_of(const c10::IValue& result,
                                                          const Operation::Call& call,
                                                          c10d::ProcessGroup& group) {
  auto* const work = static_cast<c10d::Work*>(held_by(result));
  if (work == nullptr)
    return {};
  const std::type_info& type = typeid(*work);
  const FutureSupport::Answer known = futures_.known(type);
  if (known == FutureSupport::Answer::kNo)
    return {};
  c10::intrusive_ptr<c10::ivalue::Future> future;
  try {
    future = work->getFuture();
  } catch (const std::exception&) {
    // Told by exception only; see learn().
  }
  const bool tells =
      call.on_device ? call.gpu >= 0 && works_on_host(group) : future && future->devices().empty();
  if (!tells)
    future.reset();
  if (known == FutureSupport::Answer::kNotAsked)
    futures_.learn(type, future ? FutureSupport::Answer::kYes : FutureSupport::Answer::kNo);
  return future;
}

void register_kernels(Tap& tap) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("c10d::", 0) != 0)
      continue;
    const auto handle = dispatcher.findSchema(name);
    auto operation = handle ? Operation::of(handle->schema()) : std::nullopt;
    if (!operation)
      continue;
    tap.registrations.push_back(dispatcher.registerImpl(
        name, c10::DispatchKey::BackendSelect,
        c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(std::move(*operation))),
        std::nullopt, nullptr, "lockstep"));
  }
}

}  // namespace

bool start(const Options& options) {
  if (the_tap != nullptr || options.directory == nullptr)
    return false;
  history::WriterOptions writing;
  writing.directory = options.directory;
  if (options.file_bytes != 0)
    writing.file_bytes = options.file_bytes;
  writing.rank = options.rank;
  writing.world_size = options.world_size;
  writing.torch_version = TORCH_VERSION;
  writing.at_first_group = options.at_first_group;
  writing.capabilities = history::kSeesCompletion;
  PythonSites python_sites;
  const bool python = options.sites && python_sites.begin();
  if (options.sites)
    writing.capabilities |= history::kSeesSites;
  if (python)
    writing.capabilities |= history::kSeesPythonSites;
  history::Writer* const writer = history::Writer::open(writing);
  if (writer == nullptr)
    return false;
  the_tap = new Tap{writer, new Groups(*writer), options.sites, python, python_sites, {}, {}};
  the_tap->groups->set_world(options.world_size);
  register_kernels(*the_tap);
  return true;
}

void set_rank(std::int32_t rank, std::int32_t world_size) {
  if (the_tap == nullptr)
    return;
  the_tap->writer->set_rank(rank, world_size);
  the_tap->groups->set_world(world_size);
}

void group_created(c10d::ProcessGroup& group) {
  if (the_tap != nullptr)
    the_tap->groups->created(group, call_site(/*skip=*/1));
}

void group_begun(c10d::Store& store, std::int32_t rank, std::int32_t size) {
  if (the_tap == nullptr || !the_tap->python || !the_tap->writer->begun())
    return;
  const auto ranks = ranks_being_grouped(the_tap->python_sites, static_cast<std::size_t>(size));
  if (!ranks)
    return;  // Not one of those that PyTorch counts.
  const StoreKeys keys = keys_of(store);
  const std::size_t end = keys.prefix.find_last_not_of('/') + 1;
  const std::size_t begin = end == 0 ? 0 : keys.prefix.rfind('/', end - 1) + 1;
  const std::string name = keys.prefix.substr(begin, end - begin);
  history::CreationInfo info;
  info.name = name.c_str();
  if (keys.store != 0)  // Apart where what lies before the name is: an attempt's, or a world's.
    info.store = history::mix(keys.store, history::hash_bytes(keys.prefix.data(), begin));
  info.size = size;
  info.my_rank = rank;
  info.ranks = ranks->empty() ? nullptr : ranks->data();
  info.rank_count = static_cast<std::uint32_t>(ranks->size());
  info.site = call_site(/*skip=*/1);
  the_tap->writer->begin_creation(info);
}

void world_left() {
  if (the_tap == nullptr || !the_tap->python || !the_tap->writer->begun())
    return;
  for_each_set_aside(
      [](const char* op, std::uint32_t calls) { the_tap->writer->set_aside(op, calls); });
}

void stop() {
  if (the_tap != nullptr)
    the_tap->writer->close();
}

std::size_t python_stack(char* to, std::size_t size) {
  return the_tap != nullptr && the_tap->python ? the_tap->python_sites.text(to, size) : 0;
}

const char* history_file() { return the_tap == nullptr ? "" : the_tap->writer->path(); }

}  // namespace lockstep::tap
