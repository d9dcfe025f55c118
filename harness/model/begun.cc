#include "harness/model/begun.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "harness/model/call_site.h"

namespace lockstep {
namespace {

using history::Begins;

// Start times of the kernel are whole ticks, and clocks are read one after the other.
constexpr std::uint64_t kTickNs = 10'000'000;
constexpr std::uint64_t kSlackNs = 1'000'000;
// From the event to the start that it announces, on a host with much to do.
constexpr std::uint64_t kDelayNs = 200'000'000;

/// Null where there is none, or two: on two hosts, for example.
const Process* only_process(const Run& run, std::int32_t pid) {
  const Process* only = nullptr;
  for (const Process& process : run.processes) {
    if (process.pid != pid)
      continue;
    if (only != nullptr)
      return nullptr;
    only = &process;
  }
  return only;
}

std::optional<SiteRef> line_of(const Process& process, const Begun& begun) {
  const char* const role = begun.what == Begins::kFile ? "opened" : "started";
  if (begun.site == 0 || begun.site >= process.sites.size())
    return std::nullopt;
  return site_of(process.rank.value_or(Rank{}), process.sites[begun.site].frames, role);
}

/// The line of all of them, if it is one.
class OneLine {
 public:
  void add(const std::optional<SiteRef>& line) {
    const bool differs =
        !line || (line_ && (line_->file != line->file || line_->line != line->line));
    many_ = many_ || differs;
    if (!line_)
      line_ = line;
  }
  [[nodiscard]] std::optional<SiteRef> line() const { return many_ ? std::nullopt : line_; }

 private:
  std::optional<SiteRef> line_{};
  bool many_{};
};

/// It may have announced (or reported, which comes after) what started at this time.
bool is_near(const Begun& begun, std::uint64_t started_ns) {
  if (begun.last_told)
    return begun.at_ns <= started_ns + kTickNs + kSlackNs;
  const bool after = begun.what == Begins::kSpawned;
  return begun.at_ns + (after ? kSlackNs : kDelayNs) >= started_ns &&
         begun.at_ns <= started_ns + kTickNs + (after ? kDelayNs : kSlackNs);
}

bool is_seen_from(const Process& process, std::uint64_t started_ns) {
  return std::any_of(process.begun.begin(), process.begun.end(), [&](const Begun& begun) {
    return begun.what == Begins::kNothing && begun.at_ns <= started_ns;
  });
}

/// The line of what started at this time; `may_be(what)`: that comes into question.
template <class MayBe>
std::optional<SiteRef> begun_at(const Process& process, std::uint64_t started_ns, MayBe may_be) {
  if (started_ns == 0 || !is_seen_from(process, started_ns))
    return std::nullopt;
  OneLine one;
  bool told = false;
  for (const Begun& begun : process.begun) {
    if (!may_be(begun.what) || !is_near(begun, started_ns))
      continue;
    one.add(line_of(process, begun));
    told = told || !begun.last_told;
  }
  return told ? one.line() : std::nullopt;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Helpers that libraries start without a word, at their first use.
bool is_unannounced(std::string_view name) {
  return contains(name, "multiprocessing.resource_tracker") ||
         contains(name, "multiprocessing.forkserver") || contains(name, "torch_shm_manager");
}

std::map<std::string, std::uint64_t> grown(const Descriptors& first, const Descriptors& last) {
  std::map<std::string, std::uint64_t> more;
  for (const auto& [path, count] : last.files)
    more[path] = count;
  for (const auto& [path, count] : first.files) {
    const auto at = more.find(path);
    if (at != more.end() && at->second <= count)
      more.erase(at);
    else if (at != more.end())
      at->second -= count;
  }
  return more;
}

}  // namespace

std::optional<SiteRef> thread_begun_at(const Run& run, std::int32_t pid, std::uint64_t started_ns) {
  const Process* const process = only_process(run, pid);
  if (process == nullptr)
    return std::nullopt;
  return begun_at(*process, started_ns, [](Begins what) { return what == Begins::kThread; });
}

std::optional<SiteRef> process_begun_at(const Run& run, const Leftover& left) {
  if (is_unannounced(left.name))
    return std::nullopt;
  const bool spawned = contains(left.name, "multiprocessing.spawn");
  for (std::size_t i = 0; i + 1 < left.lineage.size(); ++i) {
    const Process* const parent = only_process(run, left.lineage[i + 1].pid);
    if (parent == nullptr)
      continue;
    return begun_at(*parent, left.lineage[i].started_ns, [&](Begins what) {
      return what == Begins::kSpawned || (what == Begins::kProcess && !(i == 0 && spawned));
    });
  }
  return std::nullopt;
}

/// A line that opened one of them once may have closed it again: it is the line only if it opened
/// as many as there are more, or nearly so.
std::optional<SiteRef> files_begun_at(const Run& run, const Descriptors& first,
                                      const Descriptors& last) {
  const Process* const process = only_process(run, last.pid);
  if (process == nullptr || first.pid != last.pid)
    return std::nullopt;
  const std::map<std::string, std::uint64_t> more = grown(first, last);
  std::uint64_t opened = 0;
  OneLine one;
  for (const Begun& begun : process->begun) {
    if (begun.what != Begins::kFile || begun.at_ns > last.at_ns || !more.contains(begun.path))
      continue;
    one.add(line_of(*process, begun));
    // Those from a site are told at each power of two at least.
    opened = std::max(opened, std::uint64_t{begun.count} * 2);
  }
  return last.open > first.open && opened >= (last.open - first.open) / 2 ? one.line()
                                                                          : std::nullopt;
}

}  // namespace lockstep
