// What a host is like, as far as it matters to the ranks of a job: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::doctor {

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

struct Limit {
  std::uint64_t soft{}, hard{};
};

struct Interface {
  std::string name{};
  bool up{};
  bool loopback{};
  std::vector<std::string> addresses{};  ///< IPv4 first.
};

/// Something that outlived its job.
struct Remains {
  std::string path{};
  std::uint64_t bytes{};
  std::int32_t maker{};  ///< Ended; 0: not known.
};

struct OrphanRank {
  std::int32_t pid{};
  std::int32_t rank{};
  std::string command{};
};

/// What two ranks of Gloo did over one interface.
struct RoundTrip {
  std::string interface {};
  std::optional<double> ms{};  ///< None: they did not meet,
  std::string error{};         ///< and why.
};

/// What the user's Python said of its torch.
struct Torch {
  std::string python{};   ///< Its path; empty: there is none.
  std::string missing{};  ///< Why there is no torch, or no answer.
  std::string version{}, built_for_cuda{}, nccl{}, no_cuda_because{};
  bool cuda_available{};
  std::int32_t gpus{};
  bool no_gloo{};
  std::vector<RoundTrip> round_trips{};
};

struct Facts {
  Limit open_files{}, locked_memory{};
  bool has_rdma{};                                       ///< An InfiniBand or RoCE device is there.
  std::optional<std::uint64_t> shm_bytes{}, shm_free{};  ///< None: there is no /dev/shm.
  bool shm_writable{true};
  std::vector<Remains> remains{};
  std::vector<OrphanRank> orphans{};
  std::uint16_t port{29500};  ///< MASTER_PORT, or the one that PyTorch takes without it.
  bool port_taken{};
  std::string port_holder{};        ///< "pid 71 (python train.py)"; empty: not told.
  std::pair<int, int> own_ports{};  ///< That the kernel hands out.
  std::string host{};
  std::vector<std::string> host_addresses{};  ///< What its own name resolves to.
  std::vector<Interface> interfaces{};
  std::map<std::string, std::string> variables{};  ///< GLOO_SOCKET_IFNAME and others, where set.
  std::optional<int> ptrace_scope{};
  bool may_trace_any{};
  std::string clock_source{};
  bool clock_synchronised{};
  bool clock_in_past{};         ///< Before this program was made.
  std::string nvidia_driver{};  ///< Its version; empty: none is loaded.
  std::int32_t nvidia_devices{};
  Torch torch{};
};

/// Of this host; at most a minute, as the Python is asked for its torch.
Facts facts_of_this_host();

}  // namespace lockstep::doctor
