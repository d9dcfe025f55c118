#include "harness/tap/tap.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "harness/tap/backend_calls.h"
#include "harness/tap/begins.h"
#include "harness/tap/operation.h"
#include "harness/tap/passing.h"
#include "harness/tap/python_groups.h"
#include "harness/tap/store_keys.h"
#include "harness/tap/watch.h"

namespace lockstep::tap {
namespace {

/// Of this group's collectives on a GPU the future tells when they are done: Gloo works on the
/// host. (A backend that puts them on a stream tells no more than that this has been done.)
bool works_on_host(c10d::ProcessGroup& group) {
  try {
    return group.getBackend(c10::DeviceType::CUDA)->getBackendName() == "gloo";
  } catch (const std::exception&) {
    return false;  // None of its backends is for GPUs.
  }
}

/// Of a tensor with gaps, as a column is, Gloo handles as many elements as it has from its first
/// one on, gaps and all. Measured: of these operations, in 2.11 to 2.15.
bool has_gaps(const Call& call, c10d::ProcessGroup& group) {
  using history::Op;
  const Op op = call.issue.op;
  if (call.input == nullptr || (op != Op::kAllReduce && op != Op::kBroadcast && op != Op::kReduce))
    return false;
  const at::Tensor& tensor = *call.input;
  if (tensor.layout() != at::kStrided || tensor.is_non_overlapping_and_dense() || !tensor.is_cpu())
    return false;
  try {
    return TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR <= 15 && group.getSize() > 1 &&
           group.getBackend(c10::DeviceType::CPU)->getBackendName() == "gloo";
  } catch (const std::exception&) {
    return false;
  }
}

/// The kernel of one operator.
class Kernel : public c10::OperatorKernel {
 public:
  explicit Kernel(Operation operation) : operation_(std::move(operation)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  Operation operation_;
  FutureSupport futures_{};
};

void Kernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack* stack) {
  const c10::DispatchKeySet below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
  const c10::IValue* const arguments =
      stack->data() + (stack->size() - operation_.argument_count());
  c10d::ProcessGroup* const group = operation_.group(arguments);
  Groups::Known* const known = group == nullptr ? nullptr : recorder->groups->enter(*group);
  const c10d::Backend* const backend = known == nullptr ? nullptr : known->backend.load();
  const Inside inside(backend == nullptr ? this : static_cast<const void*>(backend));
  if (known == nullptr) {
    op.redispatchBoxed(below, stack);
    return;
  }
  Call call = operation_.read(arguments);
  call.issue.gaps = has_gaps(call, *group);
  Passing passing(*known, call, /*skip=*/1);
  op.redispatchBoxed(below, stack);
  if (!operation_.returns_work()) {
    passing.came_back();
    return;
  }
  auto* const work = stack->empty() ? nullptr : static_cast<c10d::Work*>(held_by(stack->back()));
  passing.came_back(work, futures_, [group] { return works_on_host(*group); });
}

void register_kernels() {
  auto& registrations = *new std::vector<c10::RegistrationHandleRAII>;  // For good.
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("c10d::", 0) != 0)
      continue;
    const auto handle = dispatcher.findSchema(name);
    auto operation = handle ? Operation::of(handle->schema()) : std::nullopt;
    if (!operation)
      continue;
    registrations.push_back(dispatcher.registerImpl(
        name, c10::DispatchKey::BackendSelect,
        c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(std::move(*operation))),
        std::nullopt, nullptr, "lockstep"));
  }
}

}  // namespace

bool start(const Options& options) {
  if (recorder != nullptr || options.directory == nullptr)
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
  const bool backends = find_backend_calls();
  if (backends)
    writing.capabilities |= history::kSeesBackends;
  history::Writer* const writer = history::Writer::open(writing);
  if (writer == nullptr)
    return false;
  recorder =
      new Recorder{writer, new Groups(*writer), options.sites, python, python_sites, backends, {}};
  recorder->groups->set_world(options.world_size);
  register_kernels();
  if (python)
    see_begins();
  if (backends && !see_backend_calls())
    recorder->backends = false;
  prepare_watch(options.watch);
  return true;
}

void set_rank(std::int32_t rank, std::int32_t world_size) {
  if (recorder == nullptr)
    return;
  recorder->writer->set_rank(rank, world_size);
  recorder->groups->set_world(world_size);
}

void group_created(c10d::ProcessGroup& group) {
  if (recorder != nullptr)
    recorder->groups->created(group, call_site(/*skip=*/1));
  begin_watch();
}

void backend_created(c10d::Backend& backend, c10d::Store& store) {
  if (recorder != nullptr)
    recorder->groups->created(backend, store, recorder->backends, call_site(/*skip=*/1));
}

void group_begun(c10d::Store& store, std::int32_t rank, std::int32_t size) {
  if (recorder == nullptr || !recorder->python || !recorder->writer->begun())
    return;
  const auto ranks = ranks_being_grouped(recorder->python_sites, static_cast<std::size_t>(size));
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
  recorder->writer->begin_creation(info);
}

void world_left() {
  if (recorder == nullptr || !recorder->python || !recorder->writer->begun())
    return;
  for_each_set_aside(
      [](const char* op, std::uint32_t calls) { recorder->writer->set_aside(op, calls); });
}

void stop() {
  if (recorder != nullptr)
    recorder->writer->close();
}

std::size_t python_stack(char* to, std::size_t size) {
  return recorder != nullptr && recorder->python ? recorder->python_sites.text(to, size) : 0;
}

const char* history_file() { return recorder == nullptr ? "" : recorder->writer->path(); }

}  // namespace lockstep::tap
