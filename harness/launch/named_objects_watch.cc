#include "harness/launch/named_objects_watch.h"

#include <unistd.h>

#include <algorithm>

#include "harness/base/clock.h"

namespace lockstep::launch {
namespace {

std::string name_of(os::NamedObject::Kind kind) {
  switch (kind) {
    case os::NamedObject::Kind::kDirectory:
      return "directory";
    case os::NamedObject::Kind::kLock:
      return "lock";
    default:
      return "segment";
  }
}

}  // namespace

NamedObjectsWatch::NamedObjectsWatch() {
  for (const os::NamedObject& object : os::named_objects())
    before_[object.path] = object.inode;
}

void NamedObjectsWatch::look(const std::vector<os::ProcessStat>& family, const Lineage& lineage) {
  for (const os::NamedObject& object : os::named_objects()) {
    const auto known = before_.find(object.path);
    const auto owned = owned_.find(object.path);
    if ((known != before_.end() && known->second == object.inode) ||
        (owned != owned_.end() && owned->second.object.inode == object.inode))
      continue;
    const auto take = [&](std::int32_t pid, const std::string& name) {
      owned_[object.path] = {object, pid, name, lineage.rank_of(pid)};
    };
    if (object.maker) {
      if (lineage.had(*object.maker))
        take(*object.maker, "");
      continue;
    }
    const auto holder =
        std::find_if(family.begin(), family.end(), [&](const os::ProcessStat& process) {
          return !process.zombie() && os::holds(process.id.pid, object);
        });
    if (holder != family.end())
      take(holder->id.pid, holder->name);
  }
}

std::vector<const NamedObjectsWatch::Owned*> NamedObjectsWatch::abandoned() const {
  std::vector<const Owned*> left;
  if (owned_.empty())
    return left;
  const std::vector<os::NamedObject> there = os::named_objects();
  std::vector<os::ProcessStat> living;
  for (const auto& entry : owned_) {
    const std::string& path = entry.first;
    const Owned& owned = entry.second;
    const auto now = std::find_if(there.begin(), there.end(), [&](const os::NamedObject& object) {
      return object.path == path && object.inode == owned.object.inode;
    });
    if (now == there.end())
      continue;
    if (living.empty())
      living = os::read_processes();
    if (std::none_of(living.begin(), living.end(), [&](const os::ProcessStat& process) {
          return os::holds(process.id.pid, *now);
        }))
      left.push_back(&owned);
  }
  return left;
}

std::vector<Leftover> NamedObjectsWatch::take_left() const {
  std::vector<Leftover> left;
  for (const Owned* owned : abandoned()) {
    left.push_back({.at_ns = now_ns(),
                    .kind = name_of(owned->object.kind),
                    .name = owned->object.path,
                    .pid = owned->pid,
                    .rank = owned->rank,
                    .parent_name = owned->process_name,
                    .bytes = owned->object.bytes});
    if (owned->object.private_name)
      ::unlink(owned->object.path.c_str());
  }
  return left;
}

}  // namespace lockstep::launch
