// What scenarios have in common: bringing hosts to the point where training can begin, one training
// step on every rank, and the same step on the reference host.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/batches.h"
#include "scenarios/conversation.h"

namespace lockstep {

/// A case in which training has begun: the files that hold the state before the next step.
struct Training {
  BatchShape shape{};
  std::string model{};
  std::map<std::string, std::string> contract{};
  bool refused{};  ///< By every rank in `wrap`, as the case asks for.
  std::vector<std::filesystem::path>
      state{};  ///< By rank: params, grads and buffers as of the last `state`.
};

/// Of a critic: the batch's y holds fake rows, and the inner gradient is taken at points between.
struct PenaltyPlan {
  std::string kind{};  ///< "wgan_gp", "wgan_lp" or "dragan".
  double weight{};
};

struct StepPlan {
  std::int64_t step{};
  std::vector<std::int64_t> rows{};  ///< By rank.
  RankSet live{};                    ///< Who has a batch for this step; empty: all.
  double divide_by{};                ///< Of the mean of rank means; 0: the number of those.
  Values values{Values::kReal};
  double scale{1.0};
  std::string loss{"mean"};
  std::int64_t micro_batches{1};  ///< All but the last without synchronisation.
  std::int64_t forwards{1};
  std::optional<PenaltyPlan> penalty{};
  std::optional<double> argument{};  ///< A factor of the output, given to forward beside x.
  bool memory{};                     ///< Measure what each replica holds at the peak.
  std::vector<double> offsets{};     ///< By rank: added to every element of its x. Empty: nothing.
  bool offset_first{};               ///< Only to those of the first micro-batch.
  bool train{true};                  ///< False: the modules evaluate.
  bool grad{true};                   ///< False: under no_grad, no backward.
  bool sync{true};
  bool optimize{true};
  bool observed{true};      ///< False: what it leaves is not to be judged.
  bool buffers_unsynced{};  ///< By the contract, buffers at entry of this step's forwards are each
                            ///< rank's own.
  bool unjoined{};          ///< After a join, and not in another one.
  bool alone{};             ///< Ranks compute by themselves: nobody else's rows or gradients.
  std::vector<std::vector<double>> x{};  ///< By rank: instead of drawn values.
};

/// What a host's answer declares becomes part of the plan: it is what the case is judged by.
void remember_contract(Conversation& talk, const protocol::Answer& answer);

bool all_refused(const Conversation::Answers& answers);

/// The cell's options as a message carries them: booleans and integers as what they are.
protocol::Json wrap_options(const Case& cell);

/// hello, init, model, wrap; observes phases "before" (each rank's own values) and "initial" (after
/// wrapping).
/// `introduced` is called between hello and init.
Result<Training> begin(
    Conversation& talk, const std::string& model,
    const std::function<Result<void>()>& introduced = [] { return Result<void>{}; });

/// One step on every rank: observes forward entries, outputs, gradients, parameters and buffers.
/// `refused` is set when every rank declined as its contract declares; then nothing was observed.
Result<void> train_step(Conversation& talk, Training& training, const StepPlan& plan,
                        bool* refused = nullptr);

/// Observes what all ranks hold in the end, with `phase`.
Result<void> observe_all(Conversation& talk, Training& training, std::int64_t step,
                         const std::string& phase);

/// The same step on the reference host, from the state before it, as the contract weighs it, with
/// the arithmetic of the mutants as variants for the power. To be called before train_step, which
/// moves the state on.
Result<void> reference_step(Conversation& talk, const Training& training, const StepPlan& plan);

}  // namespace lockstep
