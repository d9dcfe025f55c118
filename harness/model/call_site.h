// Call sites: equal across ranks by what they are, and shown as the line of the user's code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/history/run.h"
#include "harness/verdict/verdict.h"

namespace lockstep {

/// Same code position on two ranks, same key. 0: not recorded.
std::uint64_t site_key(const Process& process, std::uint32_t site);

/// False for frames of LibTorch, of the C, C++ and Python libraries, of an interpreter, and of the
/// tap itself.
bool is_user_frame(const Frame& frame);

/// The first frame of the user's code; else of a package that calls torch for them (a trainer);
/// null if there is none.
const Frame* user_frame(const std::vector<Frame>& frames);

/// The line of a call; none if its site was not recorded or has no line of the user's.
std::optional<SiteRef> site_of(const Process& process, const Collective& call,
                               const std::string& role);
std::optional<SiteRef> site_of(Rank rank, const std::vector<Frame>& frames,
                               const std::string& role);

/// Where a call parts from another that comes from the same line: the innermost line of the user's
/// that the other's stack has not. The line of the call itself if there is none.
std::optional<SiteRef> parting_site_of(const Process& process, const Collective& call,
                                       const Process& other_process, const Collective& other,
                                       const std::string& role);

/// The thread in the course of which it was issued: what one of autograd's issues (each GPU has
/// one) belongs to the main thread's backward(), which waits for it.
std::int32_t issuer_of(const Process& process, const Collective& call);

/// Issued by a thread that the program made with Python's threading.
bool is_of_python_thread(const Process& process, const Collective& call);

/// An exception that was raised there ended a thread of Python's: nobody caught it.
bool ended_a_thread(const std::vector<Frame>& raised_at);

/// The thread that called abort(), with its frames from there outwards: lockstep looks at it before
/// the process is gone. No frames where it did not.
StackSample abort_of(const Run& run, std::int32_t pid);

/// "in" a call or "after" it; "in or after" where its completion is never told (a message's).
std::string_view in_or_after(const Collective& call);

}  // namespace lockstep
