// Reads one dump of PyTorch's Flight Recorder, a pickle or JSON, of any origin: nothing in it is
// run, and nothing of it is kept but what it shares with what comes later.
#pragma once

#include <string>

#include "harness/base/error.h"
#include "harness/history/byte_source.h"
#include "harness/history/dump_value.h"

namespace lockstep::history {

/// By its first byte. Versions 2.4 to 2.10 of the format. Errors: kMalformedHistory, with the byte
/// at which it makes no sense, and kIo; entries before that were handed on.
Result<DumpHead> read_dump(ByteSource& source, const std::string& name, const DumpEntries& entries);

/// Whether it begins as one of the two formats does.
bool looks_like_dump(ByteSource& source);

Result<DumpHead> read_pickled_dump(ByteSource& source, const std::string& name,
                                   const DumpEntries& entries);
Result<DumpHead> read_json_dump(ByteSource& source, const std::string& name,
                                const DumpEntries& entries);

/// The head of what was read, if it is that of a dump.
Result<DumpHead> checked_head(const DumpWords& words, DumpValue root, const std::string& name);
/// Entries that came in a way that they could not be taken one by one.
void take_the_rest(const DumpValues& values, const DumpWords& words, DumpValue root,
                   const DumpEntries& entries);
Error malformed_dump(const std::string& name, const std::string& what);

}  // namespace lockstep::history
