#include "harness/tap/store_keys.h"

#include <climits>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "harness/history/format.h"

namespace lockstep::tap {
namespace {

/// What it keeps to itself and its heirs.
struct Prefix : c10d::PrefixStore {
  static const std::string& of(const c10d::PrefixStore& store) { return store.*(&Prefix::prefix_); }
};

/// The port alone of a server: members may know its host by different names. The store of one
/// process, or one of the program's own, tells nothing.
std::uint64_t identity_of(const c10d::Store& store) {
  constexpr std::uint64_t kServer = 1, kFile = 2;
  if (const auto* const server = dynamic_cast<const c10d::TCPStore*>(&store))
    return history::mix(kServer, server->getPort());
  if (const auto* const file = dynamic_cast<const c10d::FileStore*>(&store)) {
    char path[PATH_MAX];
    const std::string& named = file->getPath();
    const std::string real = ::realpath(named.c_str(), path) == nullptr ? named : path;
    return history::mix(kFile, history::hash_bytes(real.data(), real.size()));
  }
  return 0;
}

}  // namespace

StoreKeys keys_of(c10d::Store& store) {
  StoreKeys keys;
  c10d::Store* at = &store;
  while (auto* const outer = dynamic_cast<c10d::PrefixStore*>(at)) {
    keys.prefix = Prefix::of(*outer) + (keys.prefix.empty() ? "" : "/") + keys.prefix;
    at = outer->getUnderlyingStore().get();  // Which `outer` keeps.
  }
  keys.store = identity_of(*at);
  return keys;
}

}  // namespace lockstep::tap
