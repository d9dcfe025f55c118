#include "harness/launch/rank_search.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>

#include "harness/launch/joining_search.h"
#include "harness/launch/last_words.h"
#include "harness/launch/rank_environment.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{250};
// A file comes a moment before the group that is written into it.
constexpr milliseconds kLookAtHistoriesEvery{10};
constexpr milliseconds kGroupMayTake{300};
constexpr int kLooksMax = 20;  // between fork and exec the environment is still its parent's

}  // namespace

RankSearch::RankSearch(history::Follower& follower, const std::string& history_directory,
                       bool ranks_are_ours, FamilyWatch& family, TrackedProcesses& processes)
    : follower_(follower),
      history_directory_(history_directory),
      family_(family),
      processes_(processes),
      ranks_are_ours_(ranks_are_ours),
      begun_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  if (begun_ && ::inotify_add_watch(begun_.get(), history_directory.c_str(), IN_CREATE) < 0)
    begun_.reset();
}

RankSearch::Clock::time_point RankSearch::due() const {
  return std::min(next_look_, next_look_at_histories_);
}

void RankSearch::hear() {
  alignas(inotify_event) char events[4096];
  while (begun_ && ::read(begun_.get(), events, sizeof events) > 0) {
    last_begun_ = Clock::now();
    next_look_at_histories_ = last_begun_;
  }
}

RankSearch::News RankSearch::look() {
  const std::clock_t begun = std::clock();
  const bool at_all = Clock::now() >= next_look_;
  News news;
  if (at_all) {
    const std::vector<os::ProcessStat>& family = look_at_family();
    const std::size_t failed = processes_.failed().size();
    processes_.hold(family, [this](std::int32_t pid) { return raised(pid); });
    news.found = look_at_environments(family) || processes_.failed().size() > failed;
  }
  const std::size_t known = processes_.each().size();
  look_at_who_is_told();
  news.found |= processes_.each().size() > known;
  news.found |= look_at_histories();
  news.happened = news.found || (at_all && in_a_group().empty() && family_.is_at_work());
  const Clock::time_point now = Clock::now();
  next_look_at_histories_ =
      now < last_begun_ + kGroupMayTake ? now + kLookAtHistoriesEvery : Clock::time_point::max();
  if (at_all) {
    // Where there are many processes, looking costs processor time: not more than a fiftieth.
    const std::chrono::duration<double> cost(double(std::clock() - begun) / CLOCKS_PER_SEC);
    next_look_ = now + std::max<Clock::duration>(
                           kLookEvery, std::chrono::duration_cast<Clock::duration>(50 * cost));
  }
  return news;
}

bool RankSearch::look_at_environments(const std::vector<os::ProcessStat>& family) {
  bool found = false;
  for (const os::ProcessStat& process : family) {
    if (ranks_are_ours_ || process.zombie() || ++looks_[process.id] > kLooksMax)
      continue;
    const std::optional<Rank> rank = told_rank(process);
    // What a rank left behind has its number, too, and nobody above it any more to tell it from
    // one; a rank has the command that started it above it, as long as that lives.
    const bool left = process.parent == ::getpid();
    if (rank && !(left && (processes_.has(*rank) || processes_.command_lives()))) {
      found |= processes_.found(process.id, *rank, /*only_told=*/true);
      world_size_ = std::max(world_size_, told_number(process.id.pid, "WORLD_SIZE").value_or(0));
    }
  }
  return found;
}

std::vector<Gone> RankSearch::look_at_who_is_told() {
  std::vector<Gone> gone;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(history_directory_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (ranks_are_ours_ || entry.path().extension() != ".rank" || told_.count(name) != 0)
      continue;
    std::ifstream file(entry.path());
    std::int32_t rank = -1, status = 0;
    file >> rank;
    const std::int32_t pid = std::atoi(name.c_str());
    const std::optional<os::ProcessStat> process = os::read_process(pid);
    if (rank < 0 || (!process && !(file >> status)))
      continue;
    if (!process) {
      gone.push_back({pid, Rank{rank}, status});
      continue;
    }
    told_.insert(name);
    if (process->parent != ::getpid())  // As in look_at_environments().
      processes_.found(process->id, Rank{rank}, /*only_told=*/true);
  }
  return gone;
}

bool RankSearch::look_at_histories() {
  follower_.poll();
  bool found = false;
  for (const Process& process : follower_.run().processes) {
    if (!process.rank || process.world_size < 2 || process.groups.empty())
      continue;
    found |= processes_.found({process.pid, process.start_ticks}, *process.rank, false);
    world_size_ = std::max(world_size_, process.world_size);
  }
  return found;
}

const std::vector<os::ProcessStat>& RankSearch::look_at_family() {
  const std::vector<os::ProcessStat>& family = family_.look(processes_.known());
  processes_.forget_helpers(family_.lineage());
  processes_.reap_inherited(family);
  return family;
}

void RankSearch::look_who_joins(bool others_wait) {
  if (ranks_are_ours_ || !in_a_group().empty())
    return;
  const auto failed = others_wait ? processes_.failed() : std::vector<os::ProcessStat>();
  for (const Joining& one : who_joins(look_at_family(), failed)) {
    processes_.found(one.id, one.rank, /*only_told=*/false, one.world_size);
    world_size_ = std::max(world_size_, one.world_size);
  }
  processes_.believe_who_failed_beside_a_rank();
}

/// Nobody has seen its group: its last words are all there is of it.
bool RankSearch::raised(std::int32_t pid) const {
  return !ranks_are_ours_ && kept_last_words(history_directory_, pid, Rank{}).has_value();
}

std::vector<Gone> RankSearch::settle() {
  std::vector<Gone> gone = look_at_who_is_told();
  look_at_family();
  look_at_histories();
  std::set<std::int32_t> in_group;
  for (const Process& process : follower_.run().processes) {
    if (!process.groups.empty())
      in_group.insert(process.pid);
  }
  processes_.believe_the_rest(in_group);
  for (const Gone& one : gone)
    processes_.was_there(one);
  return gone;
}

std::vector<Watched> RankSearch::in_a_group() const {
  std::vector<Watched> living = processes_.living(/*with_command=*/false);
  const std::vector<Process>& seen = follower_.run().processes;
  std::erase_if(living, [&](const Watched& watched) {
    return std::none_of(seen.begin(), seen.end(), [&](const Process& process) {
      return process.pid == watched.id.pid && !process.groups.empty();
    });
  });
  return living;
}

}  // namespace lockstep::launch
