#include "harness/doctor/examine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "harness/doctor/network.h"

namespace lockstep::doctor {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::size_t kShown = 4;

std::string number(std::uint64_t value) {
  return value == kUnlimited ? "unlimited" : fmt::format("{}", value);
}

std::string mebibytes(std::uint64_t bytes) {
  return bytes == kUnlimited ? "unlimited" : fmt::format("{} MiB", bytes / kMiB);
}

Item open_files(const Facts& facts) {
  const Limit limit = facts.open_files;
  Item item{.name = "open files", .have = fmt::format("{} (ulimit -n)", number(limit.soft))};
  if (limit.soft < 256)
    item.level = Level::kStops;
  else if (limit.soft < 4'096)
    item.level = Level::kWarning;
  if (item.level == Level::kWell)
    return item;
  item.need = "4096: two sockets for each pair of ranks in each group, and those of loader workers";
  item.to_do =
      limit.hard > limit.soft
          ? fmt::format("ulimit -n {}", std::min<std::uint64_t>(limit.hard, 65'536))
          : "raise the hard limit: LimitNOFILE=, /etc/security/limits.conf, docker --ulimit "
            "nofile=65536";
  return item;
}

Item locked_memory(const Facts& facts) {
  Item item{.name = "locked memory",
            .have = fmt::format("{} (ulimit -l)", mebibytes(facts.locked_memory.soft))};
  if (facts.has_rdma && facts.locked_memory.soft != kUnlimited) {
    item.level = Level::kWarning;
    item.need = "unlimited: this host has RDMA devices, whose memory is locked";
    item.to_do = "ulimit -l unlimited, LimitMEMLOCK=infinity, docker --ulimit memlock=-1";
  } else if (!facts.has_rdma) {
    item.have += "; only RDMA needs it, and there is none";
  }
  return item;
}

Item shared_memory(const Facts& facts) {
  Item item{.name = "shared memory"};
  if (!facts.shm_bytes || !facts.shm_writable) {
    item.level = Level::kStops;
    item.have = facts.shm_bytes ? "/dev/shm cannot be written" : "there is no /dev/shm";
    item.need = "a tmpfs there: loader workers and NCCL hand over data in it";
    item.to_do = "mount -t tmpfs -o size=8g tmpfs /dev/shm, docker --shm-size=8g";
    return item;
  }
  item.have = fmt::format("/dev/shm has {}, {} of it free", mebibytes(*facts.shm_bytes),
                          mebibytes(facts.shm_free.value_or(0)));
  if (facts.shm_free.value_or(0) < kMiB)
    item.level = Level::kStops;
  else if (*facts.shm_bytes <= 64 * kMiB || *facts.shm_free < 64 * kMiB)
    item.level = Level::kWarning;
  if (item.level == Level::kWell)
    return item;
  item.need = "more than 64 MiB: loader workers that find none die of SIGBUS";
  item.to_do = "docker --shm-size=8g or --ipc=host; or remove what is left there";
  return item;
}

Item leftovers(const Facts& facts) {
  Item item{.name = "leftovers"};
  std::uint64_t bytes = 0;
  std::vector<std::string> paths;
  for (const Remains& one : facts.remains) {
    bytes += one.bytes;
    if (paths.size() < kShown)
      paths.push_back(one.path);
  }
  if (facts.remains.empty()) {
    item.have = "nothing of dead jobs in /dev/shm and the temporary directory";
    return item;
  }
  item.level = Level::kWarning;
  item.have = fmt::format("{} of dead jobs, {}: {}{}", facts.remains.size(), mebibytes(bytes),
                          fmt::join(paths, ", "), facts.remains.size() > kShown ? ", ..." : "");
  item.need = "none: they take memory until the host starts again";
  item.to_do = fmt::format("when no job of yours runs: rm -r {}{}", fmt::join(paths, " "),
                           facts.remains.size() > kShown ? " ..." : "");
  return item;
}

Item orphans(const Facts& facts) {
  Item item{.name = "dead jobs"};
  if (facts.orphans.empty()) {
    item.have = "no rank whose launcher is gone";
    return item;
  }
  std::vector<std::string> told;
  for (const OrphanRank& one : facts.orphans) {
    if (told.size() < kShown)
      told.push_back(fmt::format("pid {} (rank {})", one.pid, one.rank));
  }
  item.level = Level::kWarning;
  item.have = fmt::format("{} whose launcher is gone: {}{}: {}",
                          facts.orphans.size() == 1 ? "a rank" : "ranks", fmt::join(told, ", "),
                          facts.orphans.size() > kShown ? ", ..." : "",
                          facts.orphans.front().command.substr(0, 60));
  item.need = "none, if nobody means them to run: they hold ports, memory and GPUs";
  item.to_do = fmt::format("lockstep diagnose {}; or end them", facts.orphans.front().pid);
  return item;
}

Item tracing(const Facts& facts) {
  Item item{.name = "looking into ranks"};
  const int scope = facts.ptrace_scope.value_or(0);
  item.have = facts.ptrace_scope ? fmt::format("kernel.yama.ptrace_scope is {}", scope)
                                 : "no Yama: processes of the same user may be looked into";
  if (facts.may_trace_any && scope < 3) {
    item.have += ", and CAP_SYS_PTRACE";
  } else if (scope > 0) {
    item.level = Level::kWarning;
    item.need = scope == 1 ? "0, or root, for `lockstep diagnose` (`lockstep run` does without)"
                           : "0 or 1, for the stacks of ranks that hang";
    item.to_do = scope == 3 ? "set it to 0 in /etc/sysctl.d and start the host again"
                            : "sysctl kernel.yama.ptrace_scope=0, or --cap-add=SYS_PTRACE";
  }
  return item;
}

Item clocks(const Facts& facts) {
  Item item{.name = "clocks"};
  item.have =
      fmt::format("source {}, {}", facts.clock_source.empty() ? "not told" : facts.clock_source,
                  facts.clock_synchronised ? "synchronised" : "not synchronised");
  if (facts.clock_in_past) {
    item.level = Level::kWarning;
    item.have += ", and the date lies in the past";
    item.need = "the right date: certificates and file times are judged by it";
    item.to_do = "set it: chronyc makestep";
  } else if (!facts.clock_synchronised) {
    item.level = Level::kWarning;
    item.need = "the same time on all hosts of a job, to compare their logs and dumps";
    item.to_do = "chronyd, systemd-timesyncd or ntpd; on one host it does not matter";
  }
  return item;
}

Item driver(const Facts& facts) {
  const Torch& torch = facts.torch;
  Item item{.name = "CUDA"};
  const bool has_driver = !facts.nvidia_driver.empty();
  item.have = has_driver
                  ? fmt::format("driver {}, {} GPUs", facts.nvidia_driver, facts.nvidia_devices)
                  : "no NVIDIA driver is loaded";
  if (torch.version.empty())
    return item;
  item.have += torch.built_for_cuda.empty()
                   ? "; torch is built without CUDA"
                   : fmt::format("; torch is built for CUDA {}{}{}", torch.built_for_cuda,
                                 torch.nccl.empty() ? "" : ", NCCL ", torch.nccl);
  if (has_driver && torch.built_for_cuda.empty()) {
    item.level = Level::kWarning;
    item.need = "a torch that is built for CUDA, to use the GPUs";
    item.to_do = "install it from https://download.pytorch.org/whl/";
  } else if (has_driver && !torch.cuda_available) {
    item.level = Level::kStops;
    item.have += "; torch says: " + torch.no_cuda_because;
    item.need = fmt::format("a driver for CUDA {}, and the right to open /dev/nvidia*",
                            torch.built_for_cuda);
    item.to_do = "update the driver, or install a torch for an older CUDA";
  }
  return item;
}

Item torch_item(const Facts& facts) {
  const Torch& torch = facts.torch;
  Item item{.name = "torch"};
  if (torch.version.empty()) {
    item.level = Level::kUnseen;
    item.have = torch.python.empty() ? "no python3 in PATH"
                                     : fmt::format("{}: {}", torch.python, torch.missing);
    item.need = "a Python that has torch, to try whether two ranks meet";
    item.to_do = "LOCKSTEP_PYTHON=/path/to/python lockstep doctor";
    return item;
  }
  item.have = fmt::format("{} in {}", torch.version, torch.python);
  if (torch.no_gloo) {
    item.level = Level::kWarning;
    item.have += ", without Gloo";
    item.need = "Gloo, for ranks on CPUs and for objects";
    item.to_do = "install a build that has it";
  }
  return item;
}

}  // namespace

std::string_view name_of(Level level) {
  constexpr std::string_view kNames[] = {"well", "unseen", "warning", "stops"};
  return kNames[static_cast<std::size_t>(level)];
}

std::vector<Item> examine(const Facts& facts) {
  std::vector<Item> items;
  for (Item (*const look)(const Facts&) :
       {open_files, locked_memory, shared_memory, leftovers, orphans})
    items.push_back(look(facts));
  for (Item& item : examine_network(facts))
    items.push_back(std::move(item));
  for (Item (*const look)(const Facts&) : {tracing, clocks, driver, torch_item})
    items.push_back(look(facts));
  for (const RoundTrip& trip : facts.torch.round_trips)
    items.push_back(examine_round_trip(facts, trip));
  return items;
}

bool stops_a_job(const std::vector<Item>& items) {
  return std::any_of(items.begin(), items.end(),
                     [](const Item& item) { return item.level == Level::kStops; });
}

}  // namespace lockstep::doctor
