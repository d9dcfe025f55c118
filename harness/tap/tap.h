// The library inside a rank: sees every c10d operation through one kernel at the BackendSelect key,
// and what is called on a Gloo backend itself through its table of virtual functions, and writes
// what it sees into a history file. It issues no operation of its own, keeps no Work, Future or
// group alive, takes no GIL, and holds no lock while user code runs.
//
// Needs LibTorch, the standard library and the history writer; nothing else.
#pragma once

#include <cstddef>
#include <cstdint>

namespace c10d {
class Backend;
class ProcessGroup;
class Store;
}  // namespace c10d

namespace lockstep::tap {

struct Options {
  const char* directory{};     ///< Where the history file is written; must exist.
  std::uint64_t file_bytes{};  ///< 0: the format's default.
  std::int32_t rank{-1};       ///< -1: not known yet; see set_rank.
  std::int32_t world_size{};
  bool at_first_group{};  ///< No file before the process has a group.
  const char* watch{};    ///< The script of the watch; null: values are not watched.
  bool sites{true};       ///< Record call sites: Python's, else native ones (about 1.5 us each).
};

/// Begins to record, once per process, after fork. False: nothing can be written there, or it was
/// begun before; the program runs on unseen.
bool start(const Options& options);

void set_rank(std::int32_t rank, std::int32_t world_size);

/// The process has made this group, and nothing was issued on it yet. A group that is not told of
/// is met at its first operation; then its absence from a history says nothing.
void group_created(c10d::ProcessGroup& group);

/// A group of `size` members is about to be created, who meet in `store`. Python's new_group comes
/// here, in the ranks that are members.
void group_begun(c10d::Store& store, std::int32_t rank, std::int32_t size);

/// The process is about to leave its world, in destroy_process_group.
void world_left();
/// The process has made this backend, whose members met in `store`: before a group is put around
/// it, if any is.
void backend_created(c10d::Backend& backend, c10d::Store& store);

/// Writes the closing record: the program is done with collectives.
void stop();

/// The Python frames of the calling thread; see PythonSites::text. 0: none that can be read.
std::size_t python_stack(char* to, std::size_t size);

/// Of the file that is written; empty if none.
const char* history_file();

}  // namespace lockstep::tap
