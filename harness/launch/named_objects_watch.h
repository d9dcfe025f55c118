// Shared memory, temporary directories and locks that a job makes, and whose they are: a new one is
// laid to the process of the job that made it or holds it, and to nobody where none does.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/history/run.h"
#include "harness/launch/lineage.h"
#include "harness/os/kernel_objects.h"
#include "harness/os/proc.h"

namespace lockstep::launch {

class NamedObjectsWatch {
 public:
  /// What is there now is not the job's.
  NamedObjectsWatch();

  /// Looks for new entries, and who of the job has them.
  void look(const std::vector<os::ProcessStat>& family, const Lineage& lineage);

  /// Those of the job that are still there and that no living process holds. The ones whose names
  /// mean nothing to anybody else are removed.
  std::vector<Leftover> take_left() const;

 private:
  struct Owned {
    os::NamedObject object{};
    std::int32_t pid{};
    std::string process_name{};
    std::optional<Rank> rank{};
  };

  [[nodiscard]] std::vector<const Owned*> abandoned() const;

  std::map<std::string, std::uint64_t> before_{};  // Inodes by path.
  std::map<std::string, Owned> owned_{};
};

}  // namespace lockstep::launch
