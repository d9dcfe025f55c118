// Which line of a program began what is there: a process, a thread, an open file. Only what is
// certain: where two lines come into question, none is named.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/history/run.h"
#include "harness/verdict/verdict.h"

namespace lockstep {

/// The line of process `pid` that started this thread of its.
std::optional<SiteRef> thread_begun_at(const Run& run, std::int32_t pid, std::uint64_t started_ns);

/// The line that started the process, or the one of those above it that a process whose line can be
/// known has started.
std::optional<SiteRef> process_begun_at(const Run& run, const Leftover& left);

/// The line that opened the files which a rank has more of than at first.
std::optional<SiteRef> files_begun_at(const Run& run, const Descriptors& first,
                                      const Descriptors& last);

}  // namespace lockstep
