// What ranks say when they fail: of another rank, of the store, of their own arguments.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// What a rank says when another one is gone or silent.
bool speaks_of_a_peer(std::string_view text);

/// What the wait says whose limit passes, where it waits for a message or in a collective.
bool is_the_expiry(std::string_view text);

/// What a wait of PyTorch's says when the limit that it was given has passed: not the words of a
/// program that lost patience.
bool speaks_of_a_limit(std::string_view text);

/// What a rank says whose store, which rank 0 holds as a rule, is gone, or has nobody's answer.
bool speaks_of_the_store(std::string_view text);

/// What is said where a collective takes too long on its device: by NCCL's watchdog, which ends the
/// process, or by a call of another thread that this finds its communicator gone.
bool speaks_of_its_watchdog(std::string_view text);

/// What a call says of what it was given, whatever the other ranks do.
bool speaks_of_its_arguments(std::string_view type);

/// What all_to_all_single says of splits that are not those of the caller's own tensor.
bool speaks_of_its_own_splits(std::string_view text);

/// What autograd says where a layer has no second derivative.
bool speaks_of_no_derivative(std::string_view text);

struct Saying {
  std::string text{};
  std::size_t numbers{};  ///< That were taken out.
};

/// "Rank 0 has 4 params" is "Rank # has # params", or "Rank # has 4 params" where only the numbers
/// of ranks are to go. "<object at 0x7f04>" has a number, too.
Saying without_numbers(std::string_view text, bool of_ranks_only);

}  // namespace lockstep
