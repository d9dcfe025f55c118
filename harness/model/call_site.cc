#include "harness/model/call_site.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "harness/base/library_source.h"
#include "harness/history/run.h"
#include "harness/model/stack_patterns.h"

namespace lockstep {
namespace {

/// `python -c`, or what a library has made up: "<string>:1", which is the whole program.
bool is_one_line_of_text(const Frame& frame) {
  return frame.line == 1 && frame.is_python() && frame.module.front() == '<';
}

std::uint64_t hash(std::uint64_t h, std::string_view text) {
  for (const char c : text)
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return h;
}

}  // namespace

std::uint64_t site_key(const Process& process, std::uint32_t site) {
  if (site == 0 || site >= process.sites.size() || process.sites[site].frames.empty())
    return 0;
  std::uint64_t key = 0xcbf29ce484222325ULL;
  for (const Frame& frame : process.sites[site].frames) {
    // Native code by the object alone: names may be resolved or not, and a key must not depend on
    // it. The tap and LibTorch between it and the user say nothing about where the user is.
    if (is(frame, Sign::kOfLibrary) || is_library_source(frame.module))
      continue;
    key = hash(key, frame.module) * 0x9e3779b97f4a7c15ULL + frame.offset;
    if (frame.is_python())
      key = hash(key, frame.function);
  }
  return key == 0 ? 1 : key;
}

bool is_user_frame(const Frame& frame) {
  return !is(frame, Sign::kOfLibrary) && !is_library_source(frame.module) &&
         !is_library_source(frame.file) && !is(frame, Sign::kLibraryFunction) &&
         !is_python_library(frame.module) && !is_python_library(frame.file);
}

const Frame* user_frame(const std::vector<Frame>& frames) {
  const Frame *of_package = nullptr, *of_command_line = nullptr;
  for (const Frame& frame : frames) {
    if (frame.line <= 0 || !is_user_frame(frame))
      continue;
    const bool installed = is_installed_package(frame.module) || is_installed_package(frame.file);
    if (!installed && !is_one_line_of_text(frame))
      return &frame;
    const Frame*& first = installed ? of_package : of_command_line;
    if (first == nullptr)
      first = &frame;
  }
  return of_package != nullptr ? of_package : of_command_line;
}

std::optional<SiteRef> site_of(Rank rank, const std::vector<Frame>& frames,
                               const std::string& role) {
  const Frame* frame = user_frame(frames);
  if (frame == nullptr)
    return std::nullopt;
  return SiteRef{rank, role, frame->file, frame->line, frame->function};
}

std::optional<SiteRef> site_of(const Process& process, const Collective& call,
                               const std::string& role) {
  if (call.site == 0 || call.site >= process.sites.size() || !process.rank)
    return std::nullopt;
  return site_of(*process.rank, process.sites[call.site].frames, role);
}

std::optional<SiteRef> parting_site_of(const Process& process, const Collective& call,
                                       const Process& other_process, const Collective& other,
                                       const std::string& role) {
  auto own = site_of(process, call, role);
  if (!own || other.site >= other_process.sites.size())
    return own;
  const std::vector<Frame>& theirs = other_process.sites[other.site].frames;
  std::vector<Frame> frames = process.sites[call.site].frames;
  std::erase_if(frames, [&](const Frame& frame) {
    return std::any_of(theirs.begin(), theirs.end(), [&](const Frame& f) {
      return f.module == frame.module && f.offset == frame.offset;
    });
  });
  auto parting = site_of(*process.rank, frames, role);
  return parting ? parting : own;
}

std::int32_t issuer_of(const Process& process, const Collective& call) {
  const bool for_main = call.site < process.sites.size() && !is_of_python_thread(process, call) &&
                        any(process.sites[call.site].frames, Sign::kBackwardOfPython);
  return for_main ? process.pid : static_cast<std::int32_t>(call.thread);
}

bool is_of_python_thread(const Process& process, const Collective& call) {
  return call.site < process.sites.size() &&
         any(process.sites[call.site].frames, Sign::kThreadOfPython);
}

bool ended_a_thread(const std::vector<Frame>& raised_at) {
  return any(raised_at, Sign::kThreadBootstrap);  // Where no code of the program catches.
}

StackSample abort_of(const Run& run, std::int32_t pid) {
  for (const StackSample& stack : run.stacks) {
    const auto call = std::find_if(stack.frames.begin(), stack.frames.end(),
                                   [](const Frame& frame) { return is(frame, Sign::kAbort); });
    if (stack.pid == pid && call != stack.frames.end()) {
      StackSample abort = stack;
      abort.frames.assign(call, stack.frames.end());
      return abort;
    }
  }
  return {};
}

std::string_view in_or_after(const Collective& call) {
  if (!call.returned_ns || (!call.completed_ns && !call.completion_unseen))
    return "in";
  return call.completion_unseen ? "in or after" : "after";
}

}  // namespace lockstep
