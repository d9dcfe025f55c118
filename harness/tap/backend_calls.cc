#include "harness/tap/backend_calls.h"

#include <ATen/core/Tensor.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <type_traits>
#include <vector>

#include "harness/tap/passing.h"

namespace lockstep::tap {
namespace {

using history::Op;
using Tensor = at::Tensor;
using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;
using Splits = std::vector<std::int64_t>;
using Work = c10::intrusive_ptr<c10d::Work>;

// --- What a call says of itself, as Operation reads it from an operator's arguments

void add(const Tensor& tensor, Counts& counts) { counts.add(tensor); }

template <class T>
void add(const std::vector<T>& list, Counts& counts) {
  for (const T& item : list)
    add(item, counts);
}

template <class Out, class In, class Options>
Call described(Op op, const Out& outputs, const In& inputs, const Options& options) {
  Call call;
  Counts in, out;
  add(inputs, in);
  add(outputs, out);
  call.set_tensors(in, out);
  call.issue.op = op;
  call.issue.async = true;
  call.issue.timeout_ms = options.timeout.count();
  if constexpr (requires { options.asyncOp; })
    call.issue.async = options.asyncOp;
  if constexpr (requires { options.reduceOp; })
    call.issue.reduce_op = reduce_op_of(options.reduceOp);
  if constexpr (requires { options.rootRank; })
    call.issue.root = static_cast<std::int32_t>(options.rootRank);
  return call;
}

template <Op kOp, class T, class Options>
Call in_place(T& tensors, const Options& options) {
  return described(kOp, tensors, tensors, options);
}

template <Op kOp, class Out, class In, class Options>
Call from_to(Out& outputs, In& inputs, const Options& options) {
  return described(kOp, outputs, inputs, options);
}

Call with_splits(Tensor& output, Tensor& input, Splits& outputs, Splits& inputs,
                 const c10d::AllToAllOptions& options) {
  Call call = described(Op::kAllToAllSingle, output, input, options);
  call.set_exchange(output, input, outputs, inputs);
  return call;
}

Call exchanged(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  Call call = described(Op::kAllToAll, outputs, inputs, options);
  call.set_exchange(outputs, inputs);
  return call;
}

Call nothing(const c10d::BarrierOptions& options) {
  return described(Op::kBarrier, Tensors{}, Tensors{}, options);
}

Call of_monitored(const c10d::BarrierOptions& options, bool /*wait_all*/) {
  Call call = described(Op::kMonitoredBarrier, Tensors{}, Tensors{}, options);
  call.issue.async = false;
  return call;
}

template <Op kOp>
Call message(Tensors& tensors, int peer, int tag) {
  Call call;
  Counts counts;
  add(tensors, counts);
  call.set_tensors(kOp == Op::kSend ? counts : Counts{}, kOp == Op::kSend ? Counts{} : counts);
  call.issue.op = kOp;
  call.issue.async = true;
  call.issue.root = peer;
  call.issue.tag = tag;
  return call;
}

Call message_from_anyone(Tensors& tensors, int tag) {
  return message<Op::kRecvAny>(tensors, -1, tag);
}

// --- The functions

/// Stands in the table for the function that has these arguments. `kVariant` keeps those apart that
/// are described alike.
template <auto kDescribe, class Result, int kVariant>
struct Function {
  static inline void* real = nullptr;
  static inline FutureSupport futures{};

  template <class... Arguments>
  static Result pass(c10d::Backend* self, Arguments... arguments) {
    const auto function = reinterpret_cast<Result (*)(c10d::Backend*, Arguments...)>(real);
    if (const void* const callee = Inside::of_thread(); callee != nullptr) {
      if (callee != self)
        recorder->groups->used_inside(*self);
      return function(self, arguments...);
    }
    Groups::Known* const known = recorder->groups->enter(*self);
    const Inside inside(self);
    if (known == nullptr)
      return function(self, arguments...);
    Call call = kDescribe(arguments...);
    Passing passing(*known, call, /*skip=*/1);
    if constexpr (std::is_void_v<Result>) {
      function(self, arguments...);
      passing.came_back();
    } else {
      Result result = function(self, arguments...);
      passing.came_back(result.get(), futures, [] { return true; });  // Gloo works on the host.
      return result;
    }
  }
  template <class... Arguments>
  static void* address(Call (* /*describe*/)(Arguments...)) {
    return reinterpret_cast<void*>(&pass<Arguments...>);
  }
};

struct Seen {
  const char* symbol{};  ///< Behind that of the class.
  bool needed{};         ///< Every LibTorch has it.
  void* ours{};
  void** real{};
  void** place{};  ///< In the table; null: this class has no such function of its own.
};

template <auto kDescribe, class Result = Work, int kVariant = 0>
Seen seen(const char* symbol, bool needed = false) {
  using Its = Function<kDescribe, Result, kVariant>;
  return {symbol, needed, Its::address(kDescribe), &Its::real, nullptr};
}

constexpr const char* kClass = "_ZN4c10d16ProcessGroupGloo";
constexpr const char* kTable = "_ZTVN4c10d16ProcessGroupGlooE";

#define TENSORS "RSt6vectorIN2at6TensorESaIS3_EE"
#define LISTS "RSt6vectorIS1_IN2at6TensorESaIS3_EESaIS5_EE"
#define TWO_TENSORS "RN2at6TensorES3_"
#define OPTIONS(name) "RKNS_" name "E"

// Of two names for one function a LibTorch has the one or the other.
std::vector<Seen>& functions() {
  using namespace c10d;
  constexpr auto reduced = &in_place<Op::kAllReduce, Tensors, AllreduceOptions>;
  constexpr auto gathered = &from_to<Op::kAllGatherSingle, Tensor, Tensor, AllgatherOptions>;
  constexpr auto all_gathered =
      &from_to<Op::kAllGatherCoalesced, Tensors, Tensors, AllgatherOptions>;
  constexpr auto scattered =
      &from_to<Op::kReduceScatterSingle, Tensor, Tensor, ReduceScatterOptions>;
  constexpr auto all_scattered =
      &from_to<Op::kReduceScatterCoalesced, Tensors, Tensors, ReduceScatterOptions>;
  static auto& list = *new std::vector<Seen>{
      seen<reduced>("9allreduceE" TENSORS OPTIONS("16AllreduceOptions"), true),
      seen<reduced, Work, 1>("16allreduce_sparseE" TENSORS OPTIONS("16AllreduceOptions")),
      seen<&in_place<Op::kAllReduceCoalesced, Tensors, AllreduceCoalescedOptions>>(
          "19allreduce_coalescedE" TENSORS OPTIONS("25AllreduceCoalescedOptions")),
      seen<&in_place<Op::kBroadcast, Tensors, BroadcastOptions>>(
          "9broadcastE" TENSORS OPTIONS("16BroadcastOptions"), true),
      seen<&in_place<Op::kReduce, Tensors, ReduceOptions>>(
          "6reduceE" TENSORS OPTIONS("13ReduceOptions"), true),
      seen<&from_to<Op::kAllGather, Lists, Tensors, AllgatherOptions>>(
          "9allgatherE" LISTS "RS5_" OPTIONS("16AllgatherOptions"), true),
      seen<&from_to<Op::kAllGatherCoalesced, Lists, Tensors, AllgatherOptions>>(
          "19allgather_coalescedE" LISTS "RS5_" OPTIONS("16AllgatherOptions")),
      seen<gathered>("17all_gather_singleE" TWO_TENSORS OPTIONS("16AllgatherOptions")),
      seen<gathered, Work, 1>("15_allgather_baseE" TWO_TENSORS OPTIONS("16AllgatherOptions")),
      seen<all_gathered>("27all_gather_single_coalescedE" TENSORS
                         "S6_" OPTIONS("16AllgatherOptions")),
      seen<all_gathered, Work, 1>("31allgather_into_tensor_coalescedE" TENSORS
                                  "S6_" OPTIONS("16AllgatherOptions")),
      seen<&from_to<Op::kReduceScatter, Tensors, Lists, ReduceScatterOptions>>(
          "14reduce_scatterE" TENSORS "RS1_IS5_SaIS5_EE" OPTIONS("20ReduceScatterOptions")),
      seen<scattered>("21reduce_scatter_singleE" TWO_TENSORS OPTIONS("20ReduceScatterOptions")),
      seen<scattered, Work, 1>(
          "20_reduce_scatter_baseE" TWO_TENSORS OPTIONS("20ReduceScatterOptions")),
      seen<all_scattered>("31reduce_scatter_single_coalescedE" TENSORS
                          "S6_" OPTIONS("20ReduceScatterOptions")),
      seen<all_scattered, Work, 1>("31reduce_scatter_tensor_coalescedE" TENSORS
                                   "S6_" OPTIONS("20ReduceScatterOptions")),
      seen<&from_to<Op::kGather, Lists, Tensors, GatherOptions>>(
          "6gatherE" LISTS "RS5_" OPTIONS("13GatherOptions"), true),
      seen<&from_to<Op::kScatter, Tensors, Lists, ScatterOptions>>(
          "7scatterE" TENSORS "RS1_IS5_SaIS5_EE" OPTIONS("14ScatterOptions"), true),
      seen<&exchanged>("8alltoallE" TENSORS "S6_" OPTIONS("15AllToAllOptions")),
      seen<&with_splits>("17all_to_all_singleE" TWO_TENSORS
                         "RSt6vectorIlSaIlEES7_" OPTIONS("15AllToAllOptions")),
      seen<&with_splits, Work, 1>("13alltoall_baseE" TWO_TENSORS
                                  "RSt6vectorIlSaIlEES7_" OPTIONS("15AllToAllOptions")),
      seen<&nothing>("7barrierE" OPTIONS("14BarrierOptions"), true),
      seen<&of_monitored, void>("16monitoredBarrierE" OPTIONS("14BarrierOptions") "b"),
      seen<&message<Op::kSend>>("4sendE" TENSORS "ii", true),
      seen<&message<Op::kRecv>>("4recvE" TENSORS "ii", true),
      seen<&message_from_anyone>("13recvAnysourceE" TENSORS "i", true)};
  return list;
}

#undef TENSORS
#undef LISTS
#undef TWO_TENSORS
#undef OPTIONS

// --- The table

struct Table {
  void** begin{};
  void** end{};
};

/// As the library's own symbol has it; empty if there is none.
Table table_of(void* torch) {
  auto** const begin = static_cast<void**>(::dlsym(torch, kTable));
  Dl_info found{};
  void* extra = nullptr;
  if (begin == nullptr || ::dladdr1(begin, &found, &extra, RTLD_DL_SYMENT) == 0 ||
      extra == nullptr || found.dli_saddr != begin)
    return {};
  return {begin, begin + static_cast<const ElfW(Sym)*>(extra)->st_size / sizeof(void*)};
}

/// Every function that the class has must stand in the table, and once.
bool find_place(void* torch, const Table& table, Seen& seen) {
  char name[256];
  std::snprintf(name, sizeof name, "%s%s", kClass, seen.symbol);
  void* const function = ::dlsym(torch, name);
  seen.place = nullptr;
  if (function == nullptr)
    return !seen.needed;
  for (void** place = table.begin; place != table.end; ++place) {
    if (*place != function)
      continue;
    if (seen.place != nullptr)
      return false;
    seen.place = place;
  }
  *seen.real = function;
  return seen.place != nullptr;
}

/// How the memory from `begin` to `end` may be used; -1: not all of it alike, or not known.
int protection_of(std::uintptr_t begin, std::uintptr_t end) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  int protection = -1;
  unsigned long from = 0, to = 0;
  char read = 0, write = 0, execute = 0;
  while (maps != nullptr && protection < 0 &&
         std::fscanf(maps, "%lx-%lx %c%c%c%*[^\n]", &from, &to, &read, &write, &execute) == 5) {
    if (from <= begin && end <= to)
      protection = (read == 'r' ? PROT_READ : 0) | (write == 'w' ? PROT_WRITE : 0) |
                   (execute == 'x' ? PROT_EXEC : 0);
  }
  if (maps != nullptr)
    std::fclose(maps);
  return protection;
}

}  // namespace

bool find_backend_calls() {
  void* const torch = ::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  const Table table = torch == nullptr ? Table{} : table_of(torch);
  bool found = table.begin != nullptr;
  for (Seen& seen : functions())
    found = found && find_place(torch, table, seen);
  ::dlerror();
  if (torch != nullptr)
    ::dlclose(torch);
  return found;
}

bool see_backend_calls() {
  std::uintptr_t first = ~std::uintptr_t{0}, last = 0;
  for (const Seen& seen : functions()) {
    if (seen.place == nullptr)
      continue;
    first = std::min(first, reinterpret_cast<std::uintptr_t>(seen.place));
    last = std::max(last, reinterpret_cast<std::uintptr_t>(seen.place + 1));
  }
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  first -= first % page;
  last += (page - last % page) % page;
  const int protection = protection_of(first, last);
  auto* const memory = reinterpret_cast<void*>(first);  // Which the loader has closed.
  if (protection < 0 || ::mprotect(memory, last - first, protection | PROT_WRITE) != 0)
    return false;
  for (const Seen& seen : functions()) {
    if (seen.place != nullptr)
      __atomic_store_n(seen.place, seen.ours, __ATOMIC_RELEASE);
  }
  ::mprotect(memory, last - first, protection);
  return true;
}

}  // namespace lockstep::tap
