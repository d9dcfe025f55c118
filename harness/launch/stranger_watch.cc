#include "harness/launch/stranger_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "harness/base/clock.h"
#include "harness/history/journal.h"
#include "harness/launch/rank_environment.h"
#include "harness/os/kernel_objects.h"
#include "harness/os/sockets.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kToldMax = 16;  // Of a job.

struct Meeting {
  Watched rank{};
  os::LocalConnection connection{};
};

void drop_what_they_have(std::vector<Meeting>& meetings,
                         const std::vector<os::ProcessStat>& processes) {
  for (const os::ProcessStat& process : processes) {
    if (meetings.empty())
      return;
    const std::vector<std::string> targets = os::descriptor_targets(process.id.pid);
    const std::set<std::string_view> open(targets.begin(), targets.end());
    std::erase_if(meetings, [&](const Meeting& meeting) {
      return open.contains(fmt::format("socket:[{}]", meeting.connection.other_inode));
    });
  }
}

/// A rank trains with libtorch; what else a program is connected to (a database, a tracker) does
/// not.
bool has_libtorch(std::int32_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find("/libtorch_cpu.") != std::string::npos ||
        line.find("/libc10.") != std::string::npos)
      return true;
  }
  return false;
}

/// Where ranks meet each other: at MASTER_PORT, where a rank listens, or at one that is like them.
bool is_where_ranks_meet(const Meeting& meeting, std::int32_t other) {
  return meeting.connection.accepted ||
         told_number(meeting.rank.id.pid, "MASTER_PORT") == meeting.connection.port ||
         (other != 0 && has_libtorch(other));
}

}  // namespace

void StrangerWatch::look_once(const std::vector<Watched>& ranks,
                              const std::vector<os::ProcessStat>& family) {
  std::vector<Watched> fresh;
  for (const Watched& rank : ranks) {
    if (looked_at_.insert(rank.id).second)
      fresh.push_back(rank);
  }
  if (!fresh.empty())
    look(fresh, family);
}

void StrangerWatch::look(const std::vector<Watched>& ranks,
                         const std::vector<os::ProcessStat>& family) {
  if (journal_ == nullptr || told_.size() >= kToldMax)
    return;
  std::map<std::int32_t, Watched> by_pid;
  std::vector<std::int32_t> pids;
  for (const Watched& rank : ranks) {
    by_pid[rank.id.pid] = rank;
    pids.push_back(rank.id.pid);
  }
  std::vector<Meeting> meetings;
  for (os::LocalConnection& connection : os::local_connections(pids))
    meetings.push_back({by_pid[connection.pid], std::move(connection)});
  drop_what_they_have(meetings, family);
  if (meetings.empty())
    return;
  drop_what_they_have(meetings, members_());
  const auto tell = [&](const Meeting& meeting, std::int32_t other, std::string name) {
    if (is_where_ranks_meet(meeting, other) && told_.insert({meeting.rank.id.pid, other}).second &&
        told_.size() <= kToldMax)
      // A record that cannot be written is seen as a gap by the reader.
      (void)journal_->append(Stranger{.at_ns = now_ns(),
                                      .rank = meeting.rank.rank,
                                      .pid = meeting.rank.id.pid,
                                      .address = meeting.connection.address,
                                      .other = other,
                                      .name = std::move(name)});
  };
  for (const Meeting& meeting : meetings) {
    if (meeting.connection.other_user != ::getuid())
      tell(meeting, 0, fmt::format("a process of user {}", meeting.connection.other_user));
  }
  for (const os::ProcessStat& process : os::read_processes()) {
    const std::vector<std::string> targets = os::descriptor_targets(process.id.pid);
    const std::set<std::string_view> open(targets.begin(), targets.end());
    for (const Meeting& meeting : meetings) {
      if (process.id.pid != ::getpid() &&
          open.contains(fmt::format("socket:[{}]", meeting.connection.other_inode)))
        tell(meeting, process.id.pid, os::command_line(process.id.pid));
    }
  }
}

}  // namespace lockstep::launch
