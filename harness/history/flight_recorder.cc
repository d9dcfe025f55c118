#include "harness/history/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>

#include "harness/history/dump_files.h"
#include "harness/history/recorded.h"

namespace fs = std::filesystem;

namespace lockstep::history {
namespace {

constexpr std::uint64_t kBefore = 8;   // Calls before the first that nobody finished,
constexpr std::uint64_t kAfter = 40;   // and after it, that tell what went before and instead.
constexpr std::uint64_t kAround = 96;  // Where calls before differ, on both sides.
constexpr std::int32_t kRankMax = 1 << 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// One group over all dumps: what all calls before the last ones come to.
struct Known {
  static constexpr std::uint64_t kNoSeq = ~std::uint64_t{0};
  static constexpr std::uint64_t kBlock = 64;

  std::uint64_t from{kNoSeq};     ///< The first call that somebody did not finish.
  std::uint64_t differs{kNoSeq};  ///< The first whose digests are not one.
  /// Digests of kBlock calls; 0: not known.
  std::map<std::uint64_t, std::array<std::uint64_t, kBlock>> blocks{};

  void add(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& digests) {
    std::uint64_t at = kNoSeq;
    std::array<std::uint64_t, kBlock>* block = nullptr;
    for (const auto& [seq, digest] : digests) {
      if (block == nullptr || at != seq / kBlock) {
        at = seq / kBlock;
        block = &blocks[at];
      }
      std::uint64_t& known = (*block)[seq % kBlock];
      if (known != 0 && known != digest)
        differs = std::min(differs, seq);
      known = digest;
    }
  }
};

class DumpFolder {
 public:
  explicit DumpFolder(std::string path) : path_(std::move(path)) {}

  Result<Run> read() {
    std::vector<std::string> files = files_of(path_);
    std::erase_if(files,
                  [](const std::string& file) { return rank_in_name(file) < 0 && !is_dump(file); });
    read_rings(files, {}, [&](const std::string& file, Result<DumpRead>& read) {
      if (rank_in_name(file) >= 0)
        read_first(file, read);
      else
        leave_out(
            {Error::Kind::kUsage,
             fmt::format("{}: its name has no rank, need one such as nccl_trace_rank_12", file),
             "name each dump after its rank"});
    });
    if (run_.processes.empty())
      return nothing_read();
    read_again();
    name_groups();
    finish();
    return std::move(run_);
  }

 private:
  [[nodiscard]] Error nothing_read() const {
    if (first_error_)
      return *first_error_;
    return {Error::Kind::kUsage, fmt::format("{} has no dump of a Flight Recorder", path_),
            "give the folder with the files that TORCH_FR_DUMP_TEMP_FILE or "
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE names"};
  }

  void leave_out(const Error& error) {
    run_.missing.push_back(error.what);
    if (!first_error_)
      first_error_ = error;
  }

  void read_first(const std::string& file, Result<DumpRead>& read) {
    if (!read)
      return leave_out(read.error());
    const std::int32_t rank = rank_in_name(file);
    Process& process = process_of(Rank{rank});
    process.file += (process.file.empty() ? "" : " ") + fs::path(file).filename().string();
    process.closed_ns = std::max(process.closed_ns, written_ns(file));
    learn_ranks(read->head);
    for (const RingGroup& group : read->ring.groups())
      learn(group);
    put(*read, process);
    files_[rank].push_back(file);
  }

  Process& process_of(Rank rank) {
    const auto [at, is_new] = index_.try_emplace(rank.value, run_.processes.size());
    if (is_new) {
      Process& process = run_.processes.emplace_back();
      process.rank = rank;
      process.capabilities = kRecorded;
      process.closed = true;
      process.sites.emplace_back();
    }
    return run_.processes[at->second];
  }

  void learn_ranks(const DumpHead& head) {
    for (const DumpHead::Config& config : head.groups) {
      std::vector<Rank>& ranks = ranks_[config.name];
      for (const std::int32_t rank : config.ranks)
        world_ = std::max(world_, std::min(rank, kRankMax) + 1);
      if (!ranks.empty())
        continue;
      for (const std::int32_t rank : config.ranks)
        ranks.push_back(Rank{rank});
    }
  }

  void learn(const RingGroup& group) {
    Known& known = known_[group.key()];
    if (group.first_open)
      known.from = std::min(known.from, *group.first_open);
    known.add(group.digests);
  }

  /// What must be known besides the last calls, of this group.
  [[nodiscard]] static std::optional<std::pair<std::uint64_t, std::uint64_t>> wanted(
      const Known& known) {
    if (known.differs != Known::kNoSeq)
      return std::pair(known.differs - std::min(known.differs, kAround), known.differs + kAround);
    if (known.from == Known::kNoSeq)
      return std::nullopt;
    return std::pair(known.from - std::min(known.from, kBefore), known.from + kAfter);
  }

  void read_again() {
    std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> windows;
    for (const auto& [key, known] : known_) {
      if (const auto window = wanted(known))
        windows.emplace(key, *window);
    }
    std::vector<std::string> lacking;
    std::map<std::int32_t, Process> again;
    for (const auto& [rank, files] : files_) {
      if (!lacks(run_.processes[index_.at(rank)], windows))
        continue;
      lacking.insert(lacking.end(), files.begin(), files.end());
      again[rank].rank = Rank{rank};
      again[rank].sites.emplace_back();
    }
    read_rings(lacking, windows, [&](const std::string& file, Result<DumpRead>& read) {
      if (read)
        put(*read, again.at(rank_in_name(file)));
    });
    for (auto& [rank, read] : again) {
      Process& process = run_.processes[index_.at(rank)];
      process.groups = std::move(read.groups);
      process.sites = std::move(read.sites);
      process.collectives = std::move(read.collectives);
    }
  }

  [[nodiscard]] bool lacks(const Process& process, const Wanted& windows) const {
    std::vector<std::uint64_t> first(process.groups.size(), Known::kNoSeq);
    for (const Collective& call : process.collectives) {
      if (!is_point_to_point(call.op))
        first[call.group] = std::min(first[call.group], call.seq);
    }
    for (std::size_t i = 0; i < first.size(); ++i) {
      const Group& group = process.groups[i];
      const auto window = windows.find(group.name);
      // The ring had more.
      if (window != windows.end() && first[i] != Known::kNoSeq &&
          first[i] > std::max(window->second.first, oldest_.at({process.rank->value, group.name})))
        return true;
    }
    return false;
  }

  /// Into the process: its groups by key, for the time being.
  void put(DumpRead& read, Process& process) {
    const auto first_group = static_cast<std::uint32_t>(process.groups.size());
    const auto first_site = static_cast<std::uint32_t>(process.sites.size() - 1);
    std::vector<CallSite>& sites = read.ring.sites();
    process.sites.insert(process.sites.end(), std::next(sites.begin()), sites.end());
    for (RingGroup& ring : read.ring.groups()) {
      Group& group = process.groups.emplace_back();
      group.name = ring.key();
      descriptions_.emplace(group.name, ring.description);
      group.seen_from_creation = true;
      if (ring.id > 0)  // The world is the first.
        ids_[{process.rank->value, group.name}] = ring.id;
      oldest_[{process.rank->value, group.name}] = ring.first_seq;
      group.issued = ring.end_seq;
      group.completed = ring.done_before;
      for (const Collective& call : ring.point_to_point)
        process.collectives.push_back(moved(call, first_group, first_site));
      for (const Collective& call : ring.kept)
        process.collectives.push_back(moved(call, first_group, first_site));
    }
    std::stable_sort(process.collectives.begin(), process.collectives.end(),
                     [](const Collective& a, const Collective& b) { return a.record < b.record; });
    process.collectives.shrink_to_fit();
    if (!process.collectives.empty())
      process.opened_ns = process.collectives.front().issued_ns;
  }

  static Collective moved(Collective call, std::uint32_t first_group, std::uint32_t first_site) {
    call.group += first_group;
    call.site += call.site == 0 ? 0 : first_site;
    return call;
  }

  /// "0", or "mesh_tp:5" where it has a description; with its backend where it has two. Without a
  /// description "pg2:5": all ranks make their groups in one order.
  void name_groups() {
    std::map<std::string, int> backends;
    for (const auto& [key, description] : descriptions_) {
      if (key.back() != '/')
        ++backends[key.substr(0, key.rfind('/'))];
    }
    for (Process& process : run_.processes) {
      drop_twins(process);
      for (Group& group : process.groups) {
        const std::string key = group.name;
        const std::string name = key.substr(0, key.rfind('/'));
        const std::string& description = descriptions_[key];
        const bool plain = description.empty() || description == "undefined" ||
                           description == "default_pg" || description == name;
        const auto id = ids_.find({process.rank->value, key});
        group.name = !plain             ? description + ":" + name
                     : id == ids_.end() ? name
                                        : fmt::format("pg{}:{}", id->second, name);
        if (backends[name] > 1)
          group.name += "(" + key.substr(key.rfind('/') + 1) + ")";
        place(group, name, description == "default_pg", *process.rank);
      }
    }
  }

  /// Two files of one rank tell the same group, as a rule one after the other, or only one of them
  /// has calls: the one that is further counts.
  static void drop_twins(Process& process) {
    for (std::uint32_t a = 0; a < process.groups.size(); ++a) {
      for (std::uint32_t b = 0; b < process.groups.size(); ++b) {
        const std::string &one = process.groups[a].name, &other = process.groups[b].name;
        const bool unused = one.back() == '/' && other.substr(0, one.size()) == one;
        if (a == b || process.groups[a].inside || process.groups[b].inside ||
            !(one == other || unused))
          continue;
        const bool first_goes = unused || process.groups[a].issued < process.groups[b].issued;
        process.groups[first_goes ? a : b].inside = true;
        std::erase_if(process.collectives, [gone = first_goes ? a : b](const Collective& call) {
          return call.group == gone;
        });
      }
    }
  }

  void place(Group& group, const std::string& name, bool is_world, Rank rank) {
    const auto listed = ranks_.find(name);
    if (listed != ranks_.end())
      group.ranks = listed->second;
    if (group.ranks.empty() && is_world) {
      for (std::int32_t i = 0; i < std::max(world_, last_rank() + 1); ++i)
        group.ranks.push_back(Rank{i});
    }
    group.size = static_cast<std::int32_t>(group.ranks.size());
    const auto at = std::find(group.ranks.begin(), group.ranks.end(), rank);
    // PyTorch may list groups of others.
    group.inside |= at == group.ranks.end() && !group.ranks.empty() && group.issued == 0;
    group.my_rank =
        at == group.ranks.end() ? -1 : static_cast<std::int32_t>(at - group.ranks.begin());
  }

  [[nodiscard]] std::int32_t last_rank() const { return index_.rbegin()->first; }

  void finish() {
    std::sort(run_.processes.begin(), run_.processes.end(),
              [](const Process& a, const Process& b) { return a.rank < b.rank; });
    run_.directory = path_;
    run_.plan.id = fs::path(path_).lexically_normal().filename().string();
    run_.plan.world_size = std::max(world_, last_rank() + 1);
    for (Process& process : run_.processes)
      process.world_size = run_.plan.world_size;
  }

  std::string path_;
  Run run_{};
  std::map<std::int32_t, std::size_t> index_{};  ///< In processes, by rank.
  std::map<std::int32_t, std::vector<std::string>> files_{};
  std::map<std::string, std::vector<Rank>> ranks_{};
  std::map<std::string, std::string> descriptions_{};
  std::map<std::string, Known> known_{};
  std::map<std::pair<std::int32_t, std::string>, std::uint64_t> oldest_{};  ///< In the rings.
  std::map<std::pair<std::int32_t, std::string>, std::int64_t> ids_{};
  std::int32_t world_{};
  std::optional<Error> first_error_{};
};

}  // namespace

std::int32_t rank_in_name(const std::string& file) {
  const std::string name = fs::path(file).filename().string();
  const std::size_t word = name.rfind("rank");
  std::size_t end = name.size();
  if (word != std::string::npos) {  // The number behind the word.
    const std::size_t first = name.find_first_of("0123456789", word);
    if (first != std::string::npos && first <= word + 5)
      end = std::min(name.find_first_not_of("0123456789", first), name.size());
  }
  while (end > 0 && !is_digit(name[end - 1]))
    --end;
  std::size_t begin = end;
  while (begin > 0 && is_digit(name[begin - 1]))
    --begin;
  std::int32_t rank = -1;
  std::from_chars(name.data() + begin, name.data() + end, rank);
  return rank < kRankMax ? rank : -1;
}

bool holds_dumps(const std::string& path) {
  std::error_code error;
  if (fs::exists(path + "/run.json", error) || !fs::exists(path, error))
    return false;
  if (!fs::is_directory(path, error))
    return true;
  const std::vector<std::string> files = files_of(path);
  return std::any_of(files.begin(), files.end(), [](const std::string& file) {
    return rank_in_name(file) >= 0 || is_dump(file);
  });
}

Result<Run> open_dumps(const std::string& path) { return DumpFolder(path).read(); }

}  // namespace lockstep::history
