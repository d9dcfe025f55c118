// What a Python program begins, and where: processes, threads, open files. The interpreter tells it
// by its audit events, and calls us with the GIL held; we run no Python and hold no object.
#pragma once

#pragma GCC visibility push(hidden)

namespace lockstep::tap {

/// To be called once per process, with the GIL held and the recorder there. Where the interpreter
/// has no audit events, or what it begins could not be remembered, nothing is seen.
void see_begins();

/// Before a thread is created, with the address that asks for it: an interpreter that has no event
/// for its threads is seen by that.
void see_thread(const void* caller);

}  // namespace lockstep::tap

#pragma GCC visibility pop
