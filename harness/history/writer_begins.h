// What Writer says of what the program begins: processes, threads, open files. Included by writer.h
// only.
#pragma once

#pragma GCC visibility push(hidden)

namespace lockstep::history {

/// A child of a fork has no file yet, and nothing is where its parent's was.
inline void Writer::lock_definitions() noexcept {
  lock(volatile_->define_lock);
  if (owner_pid_ != getpid())
    definitions_.attach(nullptr, nullptr);
}

/// Under the lock; null: there is no room for one more.
inline Writer::BeginSite* Writer::begin_site(Begins what, std::uint32_t site) noexcept {
  const std::uint64_t key =
      std::uint64_t{site} << 8 | static_cast<std::uint64_t>(what) | 1ULL << 63;
  auto at = static_cast<std::uint32_t>(mix(0, key) >> 16) % kBeginSites;
  while (volatile_->begins[at].key != 0 && volatile_->begins[at].key != key)
    at = (at + 1) % kBeginSites;
  BeginSite& found = volatile_->begins[at];
  std::uint32_t& sites = volatile_->begin_sites[what == Begins::kFile ? 1 : 0];
  // Half of the room is for the sites of collectives.
  if (found.key == 0 && (sites == kBeginSitesMax || definitions_.used() > definitions_.room() / 2))
    return nullptr;
  sites += found.key == 0 ? 1 : 0;
  found.key = key;
  return &found;
}

/// A file may be one of very many: later ones are told more and more seldom.
inline BeginCount Writer::count_begin(Begins what, std::uint32_t site) noexcept {
  lock_definitions();
  BeginSite* const at = begin_site(what, site);
  BeginCount answer;
  if (what == Begins::kFile) {
    const std::uint64_t count = at == nullptr ? 0 : ++at->count;
    answer.count = static_cast<std::uint32_t>(count);
    answer.told = count != 0 && count < 1ULL << 32 && (count <= 8 || (count & (count - 1)) == 0) &&
                  definitions_.used() <= definitions_.room() / 2;
  } else if (at == nullptr) {
    answer.told = answer.last = answer.any = volatile_->begins_end++ == 0;
    volatile_->begins_end = 1;
  } else if (at->count <= kBeginsOfSite) {
    answer.count = static_cast<std::uint32_t>(++at->count);
    answer.told = true;
    answer.last = at->count > kBeginsOfSite || definitions_.used() > definitions_.room() / 2;
    at->count = answer.last ? kBeginsOfSite + 1 : at->count;
  }
  unlock(volatile_->define_lock);
  return answer;
}

inline void Writer::tell_begin(Begins what, std::uint32_t site, const BeginCount& count,
                               const char* path) noexcept {
  const QuietCall quiet;
  BegunRecord record{};
  record.at_ns = clock_ns(CLOCK_MONOTONIC);
  record.site = count.any ? 0 : site;
  record.pid = getpid();
  record.count = count.count;
  record.what = static_cast<std::uint32_t>(what);
  record.last_told = count.last ? 1 : 0;
  lock_definitions();
  record.path = definitions_.add_string(path, std::strlen(path));
  definitions_.add_begun(record);
  unlock(volatile_->define_lock);
}

}  // namespace lockstep::history

#pragma GCC visibility pop
