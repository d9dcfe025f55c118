// Folders of dumps typed as tables: one line a call.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {

inline constexpr long long kIssuedNs = 1'790'000'000'000'000'000;

/// One call of a rank; completed unless said otherwise.
struct DumpCall {
  std::string name{"nccl:all_reduce"};
  int seq{1};
  std::string state{"completed"};
  int numel{8};
  std::string group{"0"};
  std::string dtype{"Float"};
  bool retired{};
};

inline DumpCall begun(DumpCall call) {
  call.state = "started";
  return call;
}
inline DumpCall queued(DumpCall call) {
  call.state = "scheduled";
  return call;
}

/// The calls 1 to `last`.
inline std::vector<DumpCall> calls(int last) {
  std::vector<DumpCall> all;
  for (int seq = 1; seq <= last; ++seq)
    all.push_back({.seq = seq});
  return all;
}

inline std::vector<DumpCall> then(std::vector<DumpCall> before, std::vector<DumpCall> after) {
  before.insert(before.end(), after.begin(), after.end());
  return before;
}

class DumpFolder {
 public:
  explicit DumpFolder(int world) : world_(world) {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep-dumps-XXXXXX");
    path_ = mkdtemp(pattern.data());
  }
  ~DumpFolder() { std::filesystem::remove_all(path_); }
  DumpFolder(const DumpFolder&) = delete;
  DumpFolder& operator=(const DumpFolder&) = delete;

  [[nodiscard]] std::string path() const { return path_.string(); }

  void raw(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

  /// `written_s` after its calls were issued.
  void dump(int rank, const std::vector<DumpCall>& entries, long long written_s = 600) const {
    std::string text;
    int record = 0;
    for (const DumpCall& call : entries)
      text += (text.empty() ? "" : ",") + entry(call, record++);
    const std::string name = fmt::format("trace_rank_{}.json", rank);
    raw(name, fmt::format(R"({{"entries":[{}],"pg_config":{{{}}},"pg_status":{{}},)"
                          R"("version":"2.10"}})",
                          text, config()));
    const timespec at{static_cast<time_t>(kIssuedNs / 1'000'000'000 + written_s), 0};
    const timespec times[] = {at, at};
    utimensat(AT_FDCWD, (path_ / name).c_str(), times, 0);
  }

  /// Another group than the world.
  void group(const std::string& name, const std::string& ranks, const std::string& kind = "") {
    groups_[name] = {ranks, kind};
  }

 private:
  [[nodiscard]] std::string config() const {
    std::string ranks;
    for (int rank = 0; rank < world_; ++rank)
      ranks += fmt::format("{}{}", rank == 0 ? "" : ", ", rank);
    std::string text =
        fmt::format(R"("0":{{"name":"0","desc":"default_pg","ranks":"[{}]"}})", ranks);
    for (const auto& [name, group] : groups_)
      text += fmt::format(R"(,"{}":{{"name":"{}","desc":"{}","ranks":"{}"}})", name, name,
                          group.second, group.first);
    return text;
  }

  [[nodiscard]] std::string entry(const DumpCall& call, int record) const {
    const bool message = call.name.find(" ") != std::string::npos;
    return fmt::format(
        R"({{"record_id":{},"pg_id":0,"process_group":["{}","{}"],"collective_seq_id":{},)"
        R"("p2p_seq_id":{},"op_id":{},"profiling_name":"{}","time_created_ns":{},)"
        R"("input_sizes":[[{}]],"output_sizes":[[{}]],"input_dtypes":["{}"],)"
        R"("output_dtypes":["{}"],"state":"{}","time_discovered_started_ns":{},)"
        R"("time_discovered_completed_ns":{},"retired":{},"timeout_ms":600000,"is_p2p":{}}})",
        record, call.group, kind_of(call.group), message ? 0 : call.seq, call.seq, record,
        call.name, kIssuedNs, call.numel, call.numel, call.dtype, call.dtype, call.state,
        call.state == "scheduled" ? 0 : kIssuedNs + 1,
        call.state == "completed" ? kIssuedNs + 2 : 0, call.retired, message);
  }

  [[nodiscard]] std::string kind_of(const std::string& group) const {
    const auto at = groups_.find(group);
    return at == groups_.end() ? "default_pg" : at->second.second;
  }

  int world_;
  std::filesystem::path path_;
  std::map<std::string, std::pair<std::string, std::string>> groups_{};  ///< Ranks, kind.
};

}  // namespace lockstep::testing
