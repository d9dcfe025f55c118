#include "harness/doctor/facts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>

#include "harness/base/unique_fd.h"
#include "harness/diagnose/rights.h"
#include "harness/doctor/ask_python.h"
#include "harness/launch/rank_environment.h"
#include "harness/os/kernel_objects.h"
#include "harness/os/proc.h"
#include "harness/os/sockets.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSharedMemory = "/dev/shm";
constexpr std::time_t kMadeAfter = 1'750'000'000;  // 2025

Limit limit_of(int resource) {
  rlimit limit{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  const auto value = [](rlim_t number) {
    return number == RLIM_INFINITY ? kUnlimited : static_cast<std::uint64_t>(number);
  };
  return {value(limit.rlim_cur), value(limit.rlim_max)};
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool has_entries(const char* directory) {
  std::error_code error;
  return fs::directory_iterator(directory, error) != fs::directory_iterator();
}

void take_shared_memory(Facts& facts) {
  struct statvfs status {};
  if (::statvfs(kSharedMemory, &status) != 0)
    return;
  facts.shm_bytes = static_cast<std::uint64_t>(status.f_blocks) * status.f_frsize;
  facts.shm_free = static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
  facts.shm_writable = ::access(kSharedMemory, W_OK) == 0;
}

/// __KMP_REGISTERED_LIB_PID_UID: what OpenMP of LLVM and Intel registers itself with.
std::vector<os::NamedObject> registered_by_openmp() {
  constexpr std::string_view kBegin = "__KMP_REGISTERED_LIB_";
  std::vector<os::NamedObject> objects;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kSharedMemory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(kBegin, 0) != 0)
      continue;
    const std::int32_t maker = std::atoi(name.c_str() + kBegin.size());
    objects.push_back({.path = entry.path().string(),
                       .bytes = entry.is_regular_file(error) ? entry.file_size(error) : 0,
                       .maker = maker > 0 ? std::optional(maker) : std::nullopt,
                       .targets = {entry.path().string()}});
  }
  return objects;
}

/// What nobody has open or mapped and whose maker, where its name tells one, has ended.
void take_remains(Facts& facts, const std::vector<os::ProcessStat>& processes) {
  std::vector<os::NamedObject> objects = os::named_objects();
  for (os::NamedObject& object : registered_by_openmp())
    objects.push_back(std::move(object));
  std::erase_if(objects, [](const os::NamedObject& object) {
    return object.maker && os::read_process(*object.maker);
  });
  for (const os::ProcessStat& process : processes) {
    if (objects.empty())
      break;
    for (const os::NamedObject& held : os::held(process.id.pid, objects))
      std::erase_if(objects, [&](const auto& object) { return object.path == held.path; });
  }
  for (const os::NamedObject& object : objects)
    facts.remains.push_back({object.path, object.bytes, object.maker.value_or(0)});
}

bool has_loaded_torch(std::int32_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/libtorch_cpu.so") != std::string::npos)
      return true;
  }
  return false;
}

/// Ranks that process 1 has taken over. (Those of Slurm have slurmstepd above them.)
void take_orphans(Facts& facts, const std::vector<os::ProcessStat>& processes) {
  for (const os::ProcessStat& process : processes) {
    const std::int32_t pid = process.id.pid;
    const auto rank =
        process.parent == 1 && !process.zombie() ? launch::told_number(pid, "RANK") : std::nullopt;
    if (rank && has_loaded_torch(pid))
      facts.orphans.push_back({pid, *rank, os::command_line(pid)});
  }
}

void take_port(Facts& facts, const std::vector<os::ProcessStat>& processes) {
  if (const auto set = facts.variables.find("MASTER_PORT"); set != facts.variables.end())
    facts.port = static_cast<std::uint16_t>(std::atoi(set->second.c_str()));
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  range >> facts.own_ports.first >> facts.own_ports.second;
  const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(facts.port);
  ::setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  facts.port_taken =
      ::bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0;
  if (!facts.port_taken)
    return;
  const std::string end = fmt::format(":{}", facts.port);
  for (const os::ProcessStat& process : processes) {
    for (const std::string& where : os::listening_on(process.id.pid)) {
      if (where.ends_with(end) && facts.port_holder.empty())
        facts.port_holder = fmt::format("pid {} ({})", process.id.pid,
                                        os::command_line(process.id.pid).substr(0, 60));
    }
  }
}

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address != nullptr && address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                sizeof text);
  else if (address != nullptr && address->sa_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
                sizeof text);
  return text;
}

void take_interfaces(Facts& facts) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0)
    return;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(all, ::freeifaddrs);
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    auto one = std::find_if(facts.interfaces.begin(), facts.interfaces.end(),
                            [&](const Interface& known) { return known.name == at->ifa_name; });
    if (one == facts.interfaces.end())
      one = facts.interfaces.insert(one, {.name = at->ifa_name,
                                          .up = (at->ifa_flags & IFF_UP) != 0,
                                          .loopback = (at->ifa_flags & IFF_LOOPBACK) != 0});
    const std::string address = text_of(at->ifa_addr);
    if (address.empty())
      continue;
    const bool first = at->ifa_addr->sa_family == AF_INET;
    one->addresses.insert(first ? one->addresses.begin() : one->addresses.end(), address);
  }
}

void take_host_name(Facts& facts) {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0)
    facts.host = name.data();
  addrinfo wanted{}, *all = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(facts.host.c_str(), nullptr, &wanted, &all) != 0)
    return;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(all, ::freeaddrinfo);
  for (const addrinfo* at = all; at != nullptr; at = at->ai_next)
    facts.host_addresses.push_back(text_of(at->ai_addr));
}

void take_variables(Facts& facts) {
  for (const char* const name :
       {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "MASTER_ADDR", "MASTER_PORT"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != 0)
      facts.variables[name] = value;
  }
}

void take_clocks(Facts& facts) {
  facts.clock_source =
      first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  timex status{};
  facts.clock_synchronised = ::adjtimex(&status) != TIME_ERROR;
  facts.clock_in_past = ::time(nullptr) < kMadeAfter;
}

/// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ...": the first word of digits
/// and dots.
std::string version_in(const std::string& line) {
  const auto is_of_version = [](char c) { return (c >= '0' && c <= '9') || c == '.'; };
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    std::string word = line.substr(at, end - at);
    if (word.find('.') != std::string::npos && std::all_of(word.begin(), word.end(), is_of_version))
      return word;
    at = end + 1;
  }
  return "";
}

void take_driver(Facts& facts) {
  facts.nvidia_driver = version_in(first_line("/proc/driver/nvidia/version"));
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", error))
    facts.nvidia_devices += entry.exists(error) ? 1 : 0;
}

}  // namespace

Facts facts_of_this_host() {
  const std::vector<os::ProcessStat> processes = os::read_processes();
  Facts facts{.open_files = limit_of(RLIMIT_NOFILE),
              .locked_memory = limit_of(RLIMIT_MEMLOCK),
              .has_rdma = has_entries("/sys/class/infiniband"),
              .ptrace_scope = diagnose::ptrace_scope(),
              .may_trace_any = diagnose::may_trace_any()};
  take_variables(facts);
  take_shared_memory(facts);
  take_remains(facts, processes);
  take_orphans(facts, processes);
  take_port(facts, processes);
  take_interfaces(facts);
  take_host_name(facts);
  take_clocks(facts);
  take_driver(facts);
  std::vector<std::string> names;
  for (const Interface& one : facts.interfaces) {
    if (one.up && !one.addresses.empty())
      names.push_back(one.name);
  }
  facts.torch = ask_python(names);
  return facts;
}

}  // namespace lockstep::doctor
