// What an error's text means: of another rank, of the store, of the caller's own arguments. The
// texts are rows (error_patterns.inc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// What a rank says when it fails. A text may mean several of these.
enum class Says : std::uint16_t {
  kPeerGone = 1U << 0U,   ///< Another rank is gone or silent.
  kStoreGone = 1U << 1U,  ///< So is the store, which rank 0 holds as a rule; or nobody answers.
  kExpired = 1U << 2U,    ///< The limit of a wait passed, for a message or in a collective.
  kLimit = 1U << 3U,      ///< The limit of any wait of PyTorch's passed: no program lost patience.
  kWatchdog =
      1U << 4U,  ///< A collective takes too long on its device, or its communicator is gone.
  kPairClosed =
      1U << 5U,  ///< Gloo closed all connections of the group after a wait's limit passed.
  kServerGone = 1U << 6U,    ///< The store's server closed the connection.
  kOwnSplits = 1U << 7U,     ///< all_to_all_single: of splits that are not those of the own tensor.
  kNoDerivative = 1U << 8U,  ///< Autograd: a layer has no second derivative.
  kNoDescriptor = 1U << 9U,  ///< The process had no descriptor left.
  kUnreduced = 1U << 10U,    ///< DDP: the last backward left out parameters.
  kUnreducedList = 1U << 11U,  ///< And which: their indices follow a colon.
  kClosedByPeer = 1U << 13U,   ///< The other end's kernel closed a connection: not only silence.
  kAsked = 1U << 12U           ///< A signal asked it to end: it is no failure of its own.
};

bool says(std::string_view text, Says what);

/// Where the words that mean it begin; npos if it does not.
std::size_t where_it_says(std::string_view text, Says what);

/// The type of an exception that a call raises for what it was given, whatever the others do.
bool speaks_of_its_arguments(std::string_view type);

struct Saying {
  std::string text{};
  std::size_t numbers{};  ///< That were taken out.
};

/// "Rank 0 has 4 params" is "Rank # has # params", or "Rank # has 4 params" where only the numbers
/// of ranks are to go. "<object at 0x7f04>" has a number, too.
Saying without_numbers(std::string_view text, bool of_ranks_only);

}  // namespace lockstep
