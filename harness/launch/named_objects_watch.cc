#include "harness/launch/named_objects_watch.h"

#include <unistd.h>

#include <algorithm>
#include <set>

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
  const auto take = [&](const os::NamedObject& object, std::int32_t pid, const std::string& name) {
    owned_[object.path] = {object, pid, name, lineage.rank_of(pid)};
  };
  std::vector<os::NamedObject> unclaimed;
  for (os::NamedObject& object : os::named_objects()) {
    const auto known = before_.find(object.path);
    const auto owned = owned_.find(object.path);
    if ((known != before_.end() && known->second == object.inode) ||
        (owned != owned_.end() && owned->second.object.inode == object.inode))
      continue;
    if (!object.maker)
      unclaimed.push_back(std::move(object));
    else if (lineage.had(*object.maker))
      take(object, *object.maker, "");
  }
  for (const os::ProcessStat& process : family) {
    if (unclaimed.empty() || process.zombie())
      continue;
    for (const os::NamedObject& object : os::held(process.id.pid, unclaimed)) {
      take(object, process.id.pid, process.name);
      unclaimed.erase(
          std::find_if(unclaimed.begin(), unclaimed.end(),
                       [&](const os::NamedObject& each) { return each.path == object.path; }));
    }
  }
}

std::vector<const NamedObjectsWatch::Owned*> NamedObjectsWatch::abandoned() const {
  std::vector<os::NamedObject> there;
  if (!owned_.empty())
    there = os::named_objects();
  const auto is_others = [&](const os::NamedObject& object) {
    const auto owned = owned_.find(object.path);
    return owned == owned_.end() || owned->second.object.inode != object.inode;
  };
  there.erase(std::remove_if(there.begin(), there.end(), is_others), there.end());
  std::set<std::string> in_use;
  if (!there.empty()) {
    for (const os::ProcessStat& process : os::read_processes()) {
      for (const os::NamedObject& object : os::held(process.id.pid, there))
        in_use.insert(object.path);
    }
  }
  std::vector<const Owned*> left;
  for (const os::NamedObject& object : there) {
    if (in_use.count(object.path) == 0)
      left.push_back(&owned_.at(object.path));
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
