// The conversation between a scenario and a rank host: one JSON object per line over a socketpair,
// at most 1 MiB a line. Bulk data and values that may not be finite travel in tensor files
// (safetensors), written under a temporary name and renamed. stdout and stderr stay the program's
// own.
//
//   request   {"id": 7, "message": "step", ...fields}
//   answer    {"id": 7, "outcome": "ok", ...fields}
//             {"id": 7, "outcome": "unsupported" | "refused" | "failed", "text": "...",
//              "raised_at": [{"module","offset"}]}
//             (the last line of a text may be "autograd node NODE; layer LAYER": where in the graph
//             and in the model a backward has failed)
//
// unsupported: the host does not have it. refused: the implementation raised the error that its
// contract declares for this input (nothing is wrong). failed: an exception that nobody declared.
//
// Each message below: fields of the request -> fields of the answer, or names in the file `out`.
//
// hello      protocol: 1; introduce (of a subject's host alone: -> subjects[], see
//            scenarios/subject.h)
//            -> name, version, language, torch, backends[], implementations[], models[]
// init       rank, world, backend, device, dtype, seed, timeout_s, rendezvous (path of a file in a
//            fresh directory)
// model      name, file (parameter values, or null: from the seed, different on every rank)
//            -> parameters[], buffers[]: {name, numel, shape, dtype, tied_to|null, contiguous,
//               requires_grad}; x[], y[]: shape of one row
// wrap       implementation, options{}, must_refuse (false; here and in `step`: what the
//            implementation raises it has to, and it is answered as refused)
//            -> contract{word: value}, buckets[][] (parameter names, where known)
// step       step, batch (file: "x", "y"), out, sync, grad, train, backward, zero_grad, optimize,
//            loss: mean|sum, forwards (1, or 2 before the one backward),
//            unjoined (false; after a join: not in another one), must_refuse, memory (false),
//            argument (a number that forward is given beside x: a
//            factor of the output; x and the output travel in containers), penalty {kind:
//            wgan_gp|wgan_lp|dragan, weight} (the model is a critic, y holds fake rows and the
//            batch file "shares", one a row or (dragan) a value, from which the points follow where
//            the inner gradient is taken; "points" are they; its forwards are three, of x, y and
//            points)
//            -> "loss" [1], "output" (not with memory or penalty), "memory/peak" (bytes by
//               replica), "argument/I" (as replica I was given it), and for forward K = 0, 1, ...:
//               "forward_entry/K/buffer/NAME", "after_forward/K/buffer/NAME",
//               "after_forward/K/norm/LAYER" (what a batch normalisation gave)
// load       file: values of parameters and buffers in the place of those that the model has
//            (asked where `wrap` has answered changed: false, and declared no `initial`)
// unwrap     from now on the module is trained without its wrapper
// exhausted  this rank gets no further step; answered when every rank is told, within a join, else
//            at once
// state      which[] of params grads buffers optimizer, out
//            -> "param/NAME", "grad/NAME" (absent when none), "buffer/NAME", "optimizer/NAME/KEY"
// eval       batch, out
//            -> "output"
// epoch      sampler, dataset (file: "dataset/length", "dataset/batch_size", "dataset/batches_max",
//            "dataset/seed", each [1]; "dataset/item_lengths", "dataset/boundaries" where batches
//            go by length), epoch, rank, world, seed, options{}, out, rendezvous (where ranks can
//            meet; for samplers that ask a process group). Needs no init.
//            -> contract{word: value}; "sampler/indices" (those of all batches in a row),
//               "sampler/batch_sizes", "sampler/length" (batches that the sampler promises; absent
//               where it never ends), "sampler/boundaries" (the caller's list, afterwards)
// fault      kind: raise|exit|kill|sleep, at: now|init|forward|backward|collective|teardown|
//            replica/I,
//            status, seconds
//            then, or at the next such moment, it happens; in a collective after `seconds`
// bye        whole (false: the exit itself may be cut short)
//            then exits 0 within the grace time
//
// Of the reference host alone:
//
// reference  out, dtype, widen, train, grad (true), forwards[{parts[{batch, rank (whose rows;
// optional),
//            rows|null, weights[] (one per row, or one for all)}], buffers (file|null),
//            buffers_after (a K: as forward K left them)}],
//            argument, penalty (as for step; the inner gradient is that of all rows of a forward)
//            -> "grad/NAME" of the sum over rows of weight x row loss, "loss", and for forward K
//               "output/K", "after_forward/K/buffer/NAME", and for a rank R whose rows it has
//               "rank/R/after_forward/K/norm/LAYER", in the order of its batch. A forward's parts
//               are evaluated in one call, one after the other, so batch statistics are those of
//               all its rows.
//
// Contract words: gradient = mean_of_rank_means | global_sample_mean | sum; buffers = rank0 | local
// | synchronised; uneven = join | drop | pad | refuse; statistics = global. Of a sampler: order =
// shuffled | sequential; draws = once | repeated (repeats: how often) | with_replacement; remainder
// = pad | drop | keep, of whole samples or, unit = batches, of whole batches of all ranks; length =
// finite | infinite; batches = any | by_length | own (of sizes of its own) | partial (several may
// be smaller); outside (of all buckets) = drop | refuse; shares = strided | blocks; repeats_come =
// in_a_row. Of gradients: unused = none | zero, what a parameter has that nobody used.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.h"

namespace lockstep::protocol {

inline constexpr int kVersion = 1;
inline constexpr std::size_t kLineBytesMax = std::size_t{1} << 20;

using Json = nlohmann::json;

/// What a host answered. `fields` is the whole object.
struct Answer {
  enum class Outcome : std::uint8_t { kOk, kUnsupported, kRefused, kFailed };
  std::uint64_t id{};
  Outcome outcome{};
  std::string text{};
  Json fields{};
};

/// One line, newline included. Invalid UTF-8 in strings is replaced, never thrown on.
std::string encode(const Json& object);

/// Parses one request line on the host's side. Errors: kHost with what was wrong.
Result<Json> decode_request(std::string_view line);

/// Parses one answer line on the scenario's side; `expected_id` must be repeated. Errors: kHost
/// (LS904).
Result<Answer> decode_answer(std::string_view line, std::uint64_t expected_id);

/// Answers of a host.
Json ok_answer(std::uint64_t id);
Json error_answer(std::uint64_t id, std::string_view outcome, std::string_view text);

/// Splits a byte stream into lines; a line over kLineBytesMax is an error and ends the stream.
class LineBuffer {
 public:
  /// Appends bytes; complete lines (without newline) are moved to `lines`. Errors: kHost, line too
  /// long.
  Result<void> append(std::string_view bytes, std::vector<std::string>& lines);
  [[nodiscard]] bool has_partial_line() const { return !partial_.empty(); }

 private:
  std::string partial_;
};

}  // namespace lockstep::protocol
