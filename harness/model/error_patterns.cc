#include "harness/model/error_patterns.h"

#include <algorithm>
#include <initializer_list>

namespace lockstep {
namespace {

bool contains_one_of(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return text.find(part) != std::string_view::npos;
  });
}

}  // namespace

bool speaks_of_a_peer(std::string_view text) {
  return speaks_of_the_store(text) ||
         contains_one_of(
             text, {"Connection closed by peer", "Connection reset by peer", "Connection refused",
                    "Broken pipe", "gloo/transport", "Application timeout caused pair closure",
                    "Timed out waiting", "Wait timeout", "Connect timeout", "Socket Timeout",
                    "ncclRemoteError", "monitoredBarrier", "Operation timed out!",
                    "of the same param in process 0", "recvValue failed"}) ||
         speaks_of_its_watchdog(text);
}

bool is_the_expiry(std::string_view text) { return contains_one_of(text, {"Timed out waiting"}); }

bool speaks_of_a_limit(std::string_view text) {
  return is_the_expiry(text) ||
         contains_one_of(text, {"monitoredBarrier", "Operation timed out!"}) ||
         speaks_of_its_watchdog(text);
}

bool speaks_of_the_store(std::string_view text) {
  return contains_one_of(
      text, {"Did the remote server shutdown or crash", "waiting for clients", "wait timeout after",
             "client socket has failed to connect", "client socket has timed out"});
}

bool speaks_of_its_watchdog(std::string_view text) {
  return contains_one_of(text, {"collective operation timeout", "collective operation timed out",
                                "NCCL operation timed out", "operations have failed or timed out",
                                "NCCL communicator was aborted"});
}

bool speaks_of_its_arguments(std::string_view type) {
  return type == "ValueError" || type == "TypeError" || type == "IndexError" || type == "KeyError";
}

bool speaks_of_its_own_splits(std::string_view text) {
  return contains_one_of(
      text, {"Split sizes must be non-negative", "Split sizes doesn't match total dim 0 size",
             "Number of tensor splits not equal to group size",
             "Tensor's dim 0 does not divide equally across group size"});
}

bool speaks_of_no_derivative(std::string_view text) {
  return contains_one_of(text, {"derivative for ", "marked with @once_differentiable",
                                "One of the differentiated Tensors does not require grad",
                                "does not require grad and does not have a grad_fn"});
}

Saying without_numbers(std::string_view text, bool of_ranks_only) {
  Saying saying;
  for (std::size_t at = 0; at < text.size();) {
    const bool address = text.substr(at, 2) == "0x";
    const std::size_t end = std::min(address ? text.find_first_not_of("0123456789abcdef", at + 2)
                                             : text.find_first_not_of("0123456789", at),
                                     text.size());
    const bool of_rank = at >= 4 && text.substr(at - 4, 4) == "ank ";
    if (end == at) {
      saying.text += text[at++];
    } else if (of_ranks_only && !of_rank) {
      saying.text += text.substr(at, end - at);
      at = end;
    } else {
      saying.text += '#';
      ++saying.numbers;
      at = end;
    }
  }
  return saying;
}

}  // namespace lockstep
