#include "harness/launch/family_watch.h"

#include <unistd.h>

#include <algorithm>

#include "harness/base/clock.h"
#include "harness/history/journal.h"
#include "harness/os/exit_report.h"
#include "harness/os/kernel_objects.h"

namespace lockstep::launch {
namespace {

constexpr std::uint64_t kSomeBytes = 1 << 16;
constexpr int kLooksInARow = 4;

}  // namespace

std::vector<os::ProcessStat> FamilyWatch::look(const std::vector<Watched>& known) {
  std::vector<os::ProcessStat> family = os::descendants_of(::getpid(), os::read_processes());
  const auto find = [&](const os::ProcessId& id) {
    return std::find_if(known.begin(), known.end(), [&](const Watched& w) { return w.id == id; });
  };
  lineage_.see(family, [&](const os::ProcessId& id) {
    const auto at = find(id);
    return at == known.end() ? std::nullopt : at->rank;
  });
  objects_.look(family, lineage_);
  for (const os::ProcessStat& process : family) {
    const auto at = find(process.id);
    if (at != known.end() && at->rank && !process.zombie())
      count_descriptors(*at);
    else if (at == known.end() && process.zombie() && process.parent == ::getpid())
      os::reap_pid_if_ended(process.id.pid);
  }
  return family;
}

// Told when they have grown by half, and once more when the limit is near.
void FamilyWatch::count_descriptors(const Watched& rank) {
  Descriptors& told = descriptors_[rank.id];
  const std::uint64_t count = os::count_descriptors(rank.id.pid).value_or(0);
  const auto is_near = [&](std::uint64_t n) { return told.limit > 0 && n * 10 >= told.limit * 9; };
  if (count < told.open + told.open / 2 + 1 && !(is_near(count) && !is_near(told.open)))
    return;
  std::optional<os::OpenDescriptors> open = os::open_descriptors_of(rank.id.pid);
  if (!open)
    return;
  told = {.at_ns = now_ns(),
          .rank = rank.rank,
          .pid = rank.id.pid,
          .open = open->open,
          .limit = open->limit,
          .kinds = std::move(open->kinds)};
  // A record that cannot be written is seen as a gap by the reader.
  if (journal_ != nullptr)
    (void)journal_->append(told);
}

bool FamilyWatch::is_at_work(const std::vector<os::ProcessStat>& family) {
  bool on = false;
  for (const os::ProcessStat& process : family) {
    Work& work = work_[process.id];
    const std::uint64_t bytes = os::bytes_read_by(process.id.pid);
    work.running = process.state == 'R' ? work.running + 1 : 0;
    // Who polls a store runs now and then, and reads little.
    on |= work.running >= kLooksInARow || bytes >= work.bytes_read + kSomeBytes;
    work.bytes_read = bytes;
  }
  return on;
}

void FamilyWatch::settle_objects(bool write_down) {
  for (const Leftover& left : objects_.take_left()) {
    if (write_down && journal_ != nullptr)
      (void)journal_->append(left);
  }
}

}  // namespace lockstep::launch
