// The files of a folder of dumps, and what each comes to.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/history/dump_ring.h"

namespace lockstep::history {

struct DumpRead {
  DumpHead head{};
  DumpRing ring{};
};

using TakeDump = std::function<void(const std::string&, Result<DumpRead>&)>;

/// Of a folder its files, in order; else the file itself.
std::vector<std::string> files_of(const std::string& path);
bool is_dump(const std::string& file);
/// By the file system; 0 where it does not say.
std::uint64_t written_ns(const std::string& file);

/// On all cores; `take` gets them one after the other, in their order.
void read_rings(const std::vector<std::string>& files, const Wanted& wanted, const TakeDump& take);

}  // namespace lockstep::history
