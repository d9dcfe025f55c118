// How lockstep gets inside the processes of a job without changing them: by environment alone. A
// shim is preloaded, and loads the tap once a process has loaded LibTorch (harness/tap/shim.c).
// Both are compiled for the LibTorch that the command will load, once, and kept in the user's
// cache.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/entry/torch.h"

namespace lockstep::entry {

/// Hears what takes long ("building the tap for torch 2.15.0"), before it begins.
using Say = std::function<void(const std::string&)>;

struct Entry {
  /// To be added to the environment of the job: LD_PRELOAD (ours after the user's), LOCKSTEP_TAPS,
  /// LOCKSTEP_HISTORY. Empty if nothing will be seen.
  std::map<std::string, std::string> environment{};
  /// Why nothing inside its processes will be seen, or only where there happens to be a tap, and
  /// what to do; empty: it will be.
  std::string unseen{};
};

/// `history`: the directory for .lsh files; it exists. A process that loads a LibTorch for which
/// there is no tap, or in which it cannot be loaded, leaves `<pid>.unseen` there: one line, why.
Entry prepare(const std::vector<std::string>& command, const std::string& history,
              const Say& say = {});

/// What the tap runs in the interpreter of a rank that is watched; to be told it as LOCKSTEP_WATCH.
std::string watch_script();

/// The program that serves a subject in Python.
std::string subject_program();

/// Where tap and shim for one LibTorch lie.
struct Built {
  std::string taps{};   ///< What all that were compiled here begin with, see tap_folder().
  std::string ready{};  ///< The folder of those that came with lockstep; empty if none did.
  std::string tap{};
  std::string shim{};
  bool fresh{};  ///< Just compiled; else found in the cache.
};

/// Compiles what is not there yet, and did not come with lockstep. Errors: kEnvironment (no
/// compiler, no headers, nowhere to write).
Result<Built> build_tap(const Torch& torch, const Say& say = {});

/// The same into a folder that lockstep is to bring along (share/lockstep/taps): the shim, and the
/// tap in a folder of its release. Errors: kEnvironment, also of a torch that is no release.
Result<Built> build_ready_tap(const Torch& torch, const std::string& folder, const Say& say = {});

/// Any that is there already.
std::optional<Built> built_before();

}  // namespace lockstep::entry
