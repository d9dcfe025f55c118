#include "harness/diagnose/find_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "harness/diagnose/rights.h"
#include "harness/launch/rank_environment.h"
#include "harness/os/kernel_objects.h"
#include "harness/os/python_frames.h"

namespace lockstep::diagnose {
namespace {

constexpr std::size_t kJobsShown = 5;
constexpr std::size_t kCommandShown = 60;

using Processes = std::map<std::int32_t, os::ProcessStat>;

bool has_loaded(std::int32_t pid, std::string_view object) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    if (line.find(object) != std::string::npos)
      return true;
  }
  return false;
}

/// How much it looks like the process that is the rank, and not like a shell or a `timeout` around
/// it, or a worker below it, which have its variables, too.
int likeness(std::int32_t pid) {
  if (has_loaded(pid, "/libtorch_cpu.so"))
    return 2;
  return has_loaded(pid, "python") ? 1 : 0;
}

struct Told {
  std::int32_t rank{}, size{}, local_size{};
};

std::optional<Told> told_of(std::int32_t pid) {
  struct Names {
    const char *rank, *size, *local_size;
  };
  constexpr Names kLaunchers[] = {
      {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
      {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"}};
  for (const Names& names : kLaunchers) {
    const auto rank = launch::told_number(pid, names.rank);
    if (rank && *rank >= 0)
      return Told{*rank, launch::told_number(pid, names.size).value_or(0),
                  launch::told_number(pid, names.local_size).value_or(0)};
  }
  return std::nullopt;
}

/// Started by torch.multiprocessing.spawn, which hands over a number and no variable.
std::optional<Told> spawned_as(const os::ProcessStat& process) {
  const auto command = os::command_line(process.id.pid);
  if (command.find("multiprocessing.spawn") == std::string::npos)
    return std::nullopt;
  const auto threads = os::read_python_threads(process.id.pid);
  if (!threads)
    return std::nullopt;
  for (const os::PythonThread& thread : *threads) {
    for (const os::PythonFrame& frame : thread.frames) {
      if (frame.function != "_wrap" ||
          frame.file.find("/torch/multiprocessing/spawn.py") == std::string::npos)
        continue;
      for (const auto& [name, value] : frame.integers) {
        if (name == "i" && value >= 0)
          return Told{static_cast<std::int32_t>(value)};
      }
    }
  }
  return std::nullopt;
}

class Search {
 public:
  Search() {
    for (const os::ProcessStat& process : os::read_processes())
      processes_.emplace(process.id.pid, process);
  }

  std::vector<RankProcess> ranks() {
    std::map<std::int32_t, Told> told;
    for (const auto& [pid, process] : processes_) {
      auto one = process.zombie() || pid == ::getpid() ? std::nullopt : told_of(pid);
      if (auto spawned = process.zombie() ? std::nullopt : spawned_as(process))
        one = spawned;  // The variables of all of them are those of their parent.
      if (one)
        told.emplace(pid, *one);
    }
    std::vector<RankProcess> all;
    for (const auto& [pid, one] : told) {
      if (best_of_its_family(pid, one.rank, told) == pid)
        all.push_back(describe(processes_.at(pid), one));
    }
    return all;
  }

  [[nodiscard]] bool knows(std::int32_t pid) const { return processes_.count(pid) != 0; }

  [[nodiscard]] bool descends(std::int32_t pid, std::int32_t ancestor) const {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      const auto at = processes_.find(pid);
      if (pid == ancestor || at == processes_.end() || at->second.parent == 0)
        return pid == ancestor;
      pid = at->second.parent;
    }
    return false;
  }

 private:
  /// Of the processes above and below one another that are told the same rank.
  std::int32_t best_of_its_family(std::int32_t pid, std::int32_t rank,
                                  const std::map<std::int32_t, Told>& told) {
    std::int32_t best = 0;
    int score = -1;
    for (const auto& [other, one] : told) {
      if (one.rank != rank || !(descends(pid, other) || descends(other, pid)))
        continue;
      const int its = likeness_of(other);
      if (its > score || (its == score && descends(best, other))) {
        best = other;
        score = its;
      }
    }
    return best;
  }

  int likeness_of(std::int32_t pid) {
    const auto [at, fresh] = likeness_.try_emplace(pid, 0);
    if (fresh)
      at->second = likeness(pid);
    return at->second;
  }

  RankProcess describe(const os::ProcessStat& process, const Told& told) const {
    const std::int32_t pid = process.id.pid;
    const launch::Told more = launch::told_of(pid);
    RankProcess rank{.id = process.id,
                     .rank = Rank{told.rank},
                     .world_size = told.size,
                     .local_size = told.local_size,
                     .meets_at = more.meets_at,
                     .command = more.command};
    for (const char* const name : {"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"}) {
      const auto id = os::environment_value(pid, name);
      if (id && *id != "none" && rank.job.empty())
        rank.job = *id;
    }
    if (rank.meets_at.empty() && rank.job.empty())
      rank.meets_at = fmt::format("children of {}", process.parent);
    return rank;
  }

  Processes processes_{};
  std::map<std::int32_t, int> likeness_{};
};

std::string jobs_listed(const std::vector<RankProcess>& ranks) {
  std::map<std::string, std::vector<const RankProcess*>> jobs;
  for (const RankProcess& rank : ranks)
    jobs[rank.name_of_job()].push_back(&rank);
  std::vector<std::string> lines;
  for (const auto& [name, members] : jobs) {
    if (lines.size() < kJobsShown)
      lines.push_back(fmt::format("{} ({} ranks, pid {}, {})", name, members.size(),
                                  members.front()->id.pid,
                                  members.front()->command.substr(0, kCommandShown)));
  }
  return fmt::format("{}", fmt::join(lines, "; "));
}

Result<std::vector<RankProcess>> by_pids(const std::vector<std::int32_t>& pids, Search& search,
                                         const std::vector<RankProcess>& all) {
  std::vector<RankProcess> found;
  for (const std::int32_t pid : pids) {
    if (!search.knows(pid))
      return Error{Error::Kind::kUsage, fmt::format("there is no process {}", pid), ""};
    // A rank, what is below one, or what is around one; else whatever started ranks.
    const auto one = std::find_if(all.begin(), all.end(), [&](const RankProcess& rank) {
      return search.descends(pid, rank.id.pid);
    });
    const std::size_t before = found.size();
    for (const RankProcess& rank : all) {
      const bool same_job =
          one != all.end() && rank.name_of_job() == one->name_of_job() && !rank.meets_at.empty();
      if (same_job || search.descends(rank.id.pid, pid))
        found.push_back(rank);
    }
    if (found.size() > before)
      continue;
    if (std::optional<Error> refused = why_refused(pid))
      return *refused;
    return Error{Error::Kind::kUsage,
                 fmt::format("process {} is no rank, and none descends from it: none has RANK, "
                             "OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID in its environment",
                             pid),
                 "give the pid of a rank, or of the torchrun, srun or mpirun that started them"};
  }
  return found;
}

bool fits(const RankProcess& rank, const Selection& selection) {
  return (selection.name.empty() || rank.command.find(selection.name) != std::string::npos) &&
         (selection.job.empty() || rank.job == selection.job || rank.meets_at == selection.job);
}

/// Each rank once, by rank. Errors: two processes are one rank.
Result<std::vector<RankProcess>> of_one_job(std::vector<RankProcess> found) {
  std::sort(found.begin(), found.end(), [](const RankProcess& a, const RankProcess& b) {
    return std::tie(a.rank, a.id) < std::tie(b.rank, b.id);
  });
  found.erase(std::unique(found.begin(), found.end(),
                          [](const auto& a, const auto& b) { return a.id == b.id; }),
              found.end());
  std::set<std::string> jobs;
  for (const RankProcess& rank : found)
    jobs.insert(rank.name_of_job());
  if (jobs.size() > 1)
    return Error{Error::Kind::kUsage,
                 fmt::format("{} jobs fit: {}", jobs.size(), jobs_listed(found)),
                 "name one: lockstep diagnose PID, or --job and the first word of its line"};
  for (std::size_t i = 1; i < found.size(); ++i) {
    if (found[i].rank == found[i - 1].rank)
      return Error{Error::Kind::kUsage,
                   fmt::format("processes {} and {} of {} both say that they are rank {}",
                               found[i - 1].id.pid, found[i].id.pid, found[i].name_of_job(),
                               found[i].rank.value),
                   ""};
  }
  return found;
}

}  // namespace

Result<std::vector<RankProcess>> find_ranks(const Selection& selection) {
  Search search;
  const std::vector<RankProcess> all = search.ranks();
  std::vector<RankProcess> found;
  if (!selection.pids.empty()) {
    Result<std::vector<RankProcess>> named = by_pids(selection.pids, search, all);
    if (!named)
      return named;
    found = std::move(*named);
  } else {
    found = all;
  }
  std::erase_if(found, [&](const RankProcess& rank) { return !fits(rank, selection); });
  if (found.empty())
    return Error{Error::Kind::kUsage,
                 all.empty() ? std::string("no process here is a rank that is ours to look at")
                             : fmt::format("no rank fits; here run: {}", jobs_listed(all)),
                 "give the pid of a rank, or of what started them; other users' jobs need root"};
  return of_one_job(std::move(found));
}

}  // namespace lockstep::diagnose
