#include "harness/history/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "harness/history/format.h"
#include "harness/history/host_numbers.h"
#include "harness/history/rank_places.h"
#include "harness/history/run_directory.h"

namespace fs = std::filesystem;

namespace lockstep::history {
namespace {

// --- How far clocks are apart

/// Nobody's result is there before every member has called.
bool needs_everybody(const Collective& collective) {
  switch (collective.op) {
    case Op::kAllReduce:
    case Op::kAllReduceCoalesced:
    case Op::kAllGather:
    case Op::kAllGatherSingle:
    case Op::kAllGatherCoalesced:
    case Op::kReduceScatter:
    case Op::kReduceScatterSingle:
    case Op::kReduceScatterCoalesced:
    case Op::kAllToAll:
    case Op::kAllToAllSingle:
    case Op::kBarrier:
      return true;
    default:
      return false;
  }
}

/// Equal for all members; where they meet has another name on each host.
std::uint64_t key_of(const Group& group, std::uint64_t seq) {
  std::uint64_t key = mix(hash_bytes(group.name.data(), group.name.size()), group.generation);
  key = mix(key, static_cast<std::uint64_t>(group.size));
  for (const Rank rank : group.ranks)
    key = mix(key, static_cast<std::uint64_t>(rank.value));
  return mix(key, seq);
}

/// Of one call, on one host: when the last of its ranks had called, and when the first one had the
/// result.
struct Met {
  std::int64_t called_ns{std::numeric_limits<std::int64_t>::min()};
  std::int64_t completed_ns{std::numeric_limits<std::int64_t>::max()};
};

using Calls = std::unordered_map<std::uint64_t, Met>;

Calls calls_of(const Run& run) {
  Calls calls;
  for (const Process& process : run.processes) {
    for (const Collective& collective : process.collectives) {
      if (!needs_everybody(collective) || collective.group >= process.groups.size())
        continue;
      const Group& group = process.groups[collective.group];
      if (group.size < 2 || !group.seen_from_creation)
        continue;
      Met& met = calls[key_of(group, collective.seq)];
      met.called_ns = std::max(met.called_ns, static_cast<std::int64_t>(collective.issued_ns));
      if (collective.completed_ns && !collective.failed)
        met.completed_ns =
            std::min(met.completed_ns, static_cast<std::int64_t>(*collective.completed_ns));
    }
  }
  return calls;
}

/// What is to be added to the times of `other` lies between them.
struct Apart {
  std::int64_t least{std::numeric_limits<std::int64_t>::min() / 4};
  std::int64_t most{std::numeric_limits<std::int64_t>::max() / 4};
  [[nodiscard]] bool known() const {
    return least > std::numeric_limits<std::int64_t>::min() / 4 &&
           most < std::numeric_limits<std::int64_t>::max() / 4;
  }
};

/// From the last calls backwards, for as long as they agree: clocks drift.
Apart apart(const Calls& reference, const Calls& other) {
  std::vector<std::pair<const Met*, const Met*>> both;
  for (const auto& [key, met] : other) {
    if (const auto at = reference.find(key); at != reference.end())
      both.emplace_back(&at->second, &met);
  }
  std::sort(both.begin(), both.end(),
            [](const auto& a, const auto& b) { return a.first->called_ns > b.first->called_ns; });
  Apart found;
  for (const auto& [here, there] : both) {
    Apart next = found;
    if (here->completed_ns != Met{}.completed_ns)
      next.most = std::min(next.most, here->completed_ns - there->called_ns);
    if (there->completed_ns != Met{}.completed_ns)
      next.least = std::max(next.least, here->called_ns - there->completed_ns);
    if (next.least > next.most)
      break;
    found = next;
  }
  return found;
}

/// By what the hosts take for the time of day; nothing says how right they are.
std::int64_t apart_by_day(const Run& reference, const Run& other) {
  const auto start_of_day = [](const Run& run) {
    return static_cast<std::int64_t>(run.plan.wall_ns) -
           static_cast<std::int64_t>(run.plan.written_ns);
  };
  const std::int64_t here = start_of_day(reference), there = start_of_day(other);
  return here == 0 || there == 0 ? 0 : there - here;
}

std::string boot_of(const Run& run) {
  return run.processes.empty() ? "" : run.processes.front().boot_id;
}

std::string name_of(const Run& run, std::size_t number) {
  return run.processes.empty() ? fmt::format("host {}", number + 1) : run.processes.front().host;
}

// --- As one

/// Into the time of the first one.
void align(Run& whole, const Calls& reference, Run& run) {
  const std::string boot = boot_of(run);
  if (!boot.empty() && boot == boot_of(whole))
    return;
  const Apart found = apart(reference, calls_of(run));
  const std::int64_t shift =
      found.known() ? found.least + (found.most - found.least) / 2 : apart_by_day(whole, run);
  shift_times(run, shift);
  const std::uint64_t error =
      found.known() ? static_cast<std::uint64_t>(found.most - found.least) / 2 + 1 : kClocksUnknown;
  whole.clock_error_ns = std::max(whole.clock_error_ns, error);
  if (!found.known())
    whole.missing.push_back(fmt::format(
        "how far the clocks of {} and {} are apart: no collective of both was completed",
        whole.hosts.front(), whole.hosts.back()));
}

template <class Records>
void append(Records& to, Records& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

void append_run(Run& whole, Run& run) {
  append(whole.processes, run.processes);
  append(whole.starts, run.starts);
  append(whole.ends, run.ends);
  append(whole.acted, run.acted);
  append(whole.states, run.states);
  append(whole.stacks, run.stacks);
  append(whole.raised, run.raised);
  append(whole.marks, run.marks);
  append(whole.notes, run.notes);
  append(whole.leftovers, run.leftovers);
  append(whole.unwaited, run.unwaited);
  append(whole.launcher_ends, run.launcher_ends);
  append(whole.strangers, run.strangers);
  append(whole.silent_hosts, run.silent_hosts);
  append(whole.unacknowledged, run.unacknowledged);
  append(whole.late_devices, run.late_devices);
  append(whole.descriptors, run.descriptors);
  append(whole.missing, run.missing);
  whole.journal_complete = whole.journal_complete && run.journal_complete;
  whole.ended_ns = std::max(whole.ended_ns, run.ended_ns);
  whole.plan.begun_ns = std::min(whole.plan.begun_ns, run.plan.begun_ns);
  whole.plan.world_size = std::max(whole.plan.world_size, run.plan.world_size);
}

/// Each list in the order of time, as one journal has it.
void sort_by_time(Run& run) {
  const auto sort = [](auto& records) {
    std::stable_sort(records.begin(), records.end(),
                     [](const auto& a, const auto& b) { return a.at_ns < b.at_ns; });
  };
  sort(run.starts);
  sort(run.ends);
  sort(run.acted);
  sort(run.states);
  sort(run.stacks);
  sort(run.raised);
  sort(run.notes);
  sort(run.unwaited);
  sort(run.descriptors);
  sort(run.silent_hosts);
  sort(run.unacknowledged);
}

/// One of them had ended before the other began, by the time of day.
bool are_apart(const Run& one, const Run& other) {
  const std::int64_t shift = apart_by_day(one, other);
  const auto begin = static_cast<std::int64_t>(other.plan.begun_ns) + shift;
  const auto end = static_cast<std::int64_t>(other.ended_ns) + shift;
  return (one.ended_ns != 0 && begin > static_cast<std::int64_t>(one.ended_ns)) ||
         (other.ended_ns != 0 && end < static_cast<std::int64_t>(one.plan.begun_ns));
}

std::optional<Rank> rank_of_both(const Run& one, const Run& other) {
  for (const Process& process : other.processes) {
    if (process.rank && one.process_of(*process.rank) != nullptr)
      return process.rank;
  }
  return std::nullopt;
}

/// The runs that lie in a directory which is none itself, by name.
std::vector<std::string> runs_in(const std::string& directory) {
  std::vector<std::string> runs;
  std::error_code failed;
  if (fs::exists(directory + "/run.json", failed))
    return runs;
  for (const auto& entry : fs::directory_iterator(directory, failed)) {
    if (fs::exists(entry.path() / "run.json", failed))
      runs.push_back(entry.path().string());
  }
  std::sort(runs.begin(), runs.end());
  return runs;
}

/// Two hosts may have one name.
std::string new_name(const std::vector<std::string>& names, const std::string& name) {
  std::string unlike = name;
  for (int again = 2; std::find(names.begin(), names.end(), unlike) != names.end(); ++again)
    unlike = fmt::format("{} ({})", name, again);
  return unlike;
}

/// Several locksteps may be on one host: one for each task of mpirun or srun. Containers count as
/// hosts.
const Process* of_one_host(const Run& whole, const Run& run) {
  if (run.processes.empty())
    return nullptr;
  const Process& one = run.processes.front();
  const auto at =
      std::find_if(whole.processes.begin(), whole.processes.end(), [&](const Process& process) {
        return process.boot_id == one.boot_id && process.pid_namespace == one.pid_namespace;
      });
  return at == whole.processes.end() ? nullptr : &*at;
}

/// Its host, and its processes told from those of others.
void name_host(Run& whole, Run& run, std::size_t number) {
  const Process* const known = of_one_host(whole, run);
  if (known == nullptr) {
    whole.hosts.push_back(new_name(whole.hosts, name_of(run, number)));
    number_pids(run, whole.hosts.size() - 1);
  }
  const std::string name = known == nullptr ? whole.hosts.back() : known->host;
  for (Process& process : run.processes)
    process.host = name;
}

std::int32_t first_rank(const Run& run) {
  std::int32_t first = INT32_MAX;
  for (const Process& process : run.processes) {
    if (process.rank)
      first = std::min(first, process.rank->value);
  }
  return first;
}

}  // namespace

Result<Run> merge_hosts(std::vector<Run> runs) {
  std::stable_sort(runs.begin(), runs.end(),
                   [](const Run& a, const Run& b) { return first_rank(a) < first_rank(b); });
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (std::size_t j = i + 1; j < runs.size(); ++j) {
      const std::optional<Rank> rank = rank_of_both(runs[i], runs[j]);
      if (rank && are_apart(runs[i], runs[j]))
        return Error{
            Error::Kind::kUsage,
            fmt::format("rank {} is in {} and, at another time, in {}: they are not one job",
                        rank->value, runs[i].directory, runs[j].directory),
            "give the runs that each host recorded of one job"};
    }
  }
  Run whole = std::move(runs.front());
  const Calls reference = calls_of(whole);
  whole.hosts = {name_of(whole, 0)};
  for (std::size_t i = 1; i < runs.size(); ++i) {
    name_host(whole, runs[i], i);
    align(whole, reference, runs[i]);
    append_run(whole, runs[i]);
  }
  sort_by_time(whole);
  settle_places(whole);
  return whole;
}

Result<Run> open_hosts(const std::vector<std::string>& directories) {
  std::vector<std::string> each;
  for (const std::string& directory : directories) {
    std::vector<std::string> within = runs_in(directory);
    if (within.empty())
      within = {directory};
    append(each, within);
  }
  if (each.size() == 1)
    return open_run(each.front());
  std::vector<Run> runs;
  for (const std::string& directory : each) {
    Result<Run> run = open_run(directory);
    if (!run)
      return run.error();
    if (!run->plan.cases.empty() || !run->plan.case_id.empty())
      return Error{Error::Kind::kUsage, fmt::format("{} is of a suite", directory),
                   "give the runs that each host recorded of one job"};
    runs.push_back(std::move(*run));
  }
  return merge_hosts(std::move(runs));
}

std::string words_of_pid(std::int32_t pid) {
  const std::int32_t host = pid >> kPidBits;
  return host <= 0 ? fmt::format("pid {}", pid)
                   : fmt::format("pid {} of host {}", own_pid(pid), host + 1);
}

std::string words_of(const Sender& sender) {
  return fmt::format("{} ({})", words_of_pid(sender.pid), sender.name);
}

}  // namespace lockstep::history
