// An implementation that is none of this repository's: PyTorch's own, or a user's. Its host says
// what it is and what it declares; what it does not declare is not asked of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/launch/supervisor.h"
#include "harness/launch/warm_parent.h"

namespace lockstep {

struct Subject {
  std::string name{};                    ///< "torch.DistributedDataParallel", "my_pkg.ddp.MyDDP".
  std::string kind{};                    ///< "ddp", "dp", "balanced_dp", "sync_bn" or "sampler".
  std::string absent{};                  ///< Why it cannot be had on this machine; empty: it can.
  std::string adapter{};                 ///< How it is used: what inspection has found.
  std::string defined_at{}, function{};  ///< "file:line", and what is defined there.
  std::map<std::string, std::string> offers{};  ///< Feature: where it says so.
  std::map<std::string, std::string> lacks{};   ///< Feature: why it is taken as absent.
  bool of_pytorch{};

  [[nodiscard]] bool has(const std::string& feature) const { return offers.count(feature) > 0; }
};

/// What `--subject` has named, and the program that serves it.
struct SubjectChoice {
  std::string name{};   ///< "torch", "my_pkg.ddp:MyDDP"; empty: the implementations of lockstep.
  std::string kind{};   ///< Of `--as`; empty: not said.
  std::string words{};  ///< Of the command, that name it: for who repeats a case.
  std::vector<std::string> command{};                ///< Of its warm parent.
  std::map<std::string, std::string> environment{};  ///< In addition.
};

launch::WarmOptions warm_options(const SubjectChoice& choice, const std::string& log_file);

/// Asks a host of its own what there is. Errors: kUsage with what it said, where the name leads to
/// nothing that fits; kEnvironment, where the host cannot be started.
Result<std::vector<Subject>> introduce(launch::Supervisor& supervisor, launch::WarmParent& hosts,
                                       const std::string& logs_directory);

/// What introduce() was told, from the file it left in `logs_directory`; none: it was not asked.
std::optional<std::vector<Subject>> introduced(const std::string& logs_directory);

}  // namespace lockstep
