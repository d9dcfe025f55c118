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
constexpr std::uint64_t kReadAllEveryNs = 2'000'000'000;

}  // namespace

const std::vector<os::ProcessStat>& FamilyWatch::look(const std::vector<Watched>& known) {
  read_family();
  const auto find = [&](const os::ProcessId& id) {
    return std::find_if(known.begin(), known.end(), [&](const Watched& w) { return w.id == id; });
  };
  lineage_.see(family_, [&](const os::ProcessId& id) {
    const auto at = find(id);
    return at == known.end() ? std::nullopt : at->rank;
  });
  objects_.look(family_, lineage_);
  for (const os::ProcessStat& process : family_) {
    const auto at = find(process.id);
    if (at != known.end() && at->rank && !process.zombie())
      count_descriptors(*at);
    else if (at == known.end() && process.zombie() && process.parent == ::getpid())
      os::reap_pid_if_ended(process.id.pid);
  }
  return family_;
}

// To read all processes of the host is most of what a look costs, and of no use where none has
// started: then those of the last time are who there is. (What has its pid may not be there yet;
// and not everybody's /proc tells the last pid at once.)
void FamilyWatch::read_family() {
  const std::uint64_t now = now_ns();
  const std::optional<std::int32_t> last = os::last_pid();
  looks_since_a_start_ = last && last == last_pid_ ? looks_since_a_start_ + 1 : 0;
  last_pid_ = last;
  if (looks_since_a_start_ < 2 || now >= all_read_ns_ + kReadAllEveryNs) {
    family_ = os::descendants_of(::getpid(), os::read_processes());
    all_read_ns_ = now;
    return;
  }
  std::vector<os::ProcessStat> still_there;
  for (const os::ProcessStat& before : family_) {
    std::optional<os::ProcessStat> process = os::read_process(before.id.pid);
    if (process && process->id == before.id)
      still_there.push_back(std::move(*process));
  }
  family_ = std::move(still_there);
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
          .kinds = std::move(open->kinds),
          .files = std::move(open->files)};
  // A record that cannot be written is seen as a gap by the reader.
  if (journal_ != nullptr)
    (void)journal_->append(told);
}

bool FamilyWatch::is_at_work() {
  bool on = false;
  for (const os::ProcessStat& process : family_) {
    Work& work = work_[process.id];
    const std::uint64_t bytes = os::bytes_read_by(process.id.pid);
    // Who waits for pages now and then as well is seen to sleep in many a look.
    const std::uint64_t now = now_ns(), wanted = os::wanted_a_processor_ns(process.id.pid);
    const bool wants = work.at_ns != 0 && wanted - work.wanted_ns >= (now - work.at_ns) / 2;
    work.wanted_ns = wanted;
    work.at_ns = now;
    work.running = process.state == 'R' || wants ? work.running + 1 : 0;
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
