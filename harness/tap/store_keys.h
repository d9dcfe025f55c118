// Where the members of a group meet: what tells a group that has no name from the others.
#pragma once

#include <cstdint>
#include <string>

namespace c10d {
class Store;
}

#pragma GCC visibility push(hidden)

namespace lockstep::tap {

struct StoreKeys {
  std::string prefix{};   ///< Of all keys, as PrefixStore puts them together.
  std::uint64_t store{};  ///< Equal for all who can meet in the store; 0 = not known.
};

StoreKeys keys_of(c10d::Store& store);

}  // namespace lockstep::tap

#pragma GCC visibility pop
