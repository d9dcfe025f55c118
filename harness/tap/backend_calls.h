// Calls on a Gloo backend itself, which pass no operator of c10d: seen at its virtual functions.
// The table of them lies in LibTorch; a place of it is known by the address of the exported
// function that stands in it, and by nothing else. What such a function calls of its own backend in
// turn, and what an operator's kernel calls, is part of that call and is not seen again.
#pragma once

#pragma GCC visibility push(hidden)

namespace lockstep::tap {

/// False: this LibTorch's table is not laid out as is known, and its calls are not seen.
bool find_backend_calls();

/// To be called once, when they were found and the recorder is there. False: the table cannot be
/// written.
bool see_backend_calls();

}  // namespace lockstep::tap

#pragma GCC visibility pop
