// Where the torch of a Python is: asked of the interpreter, and remembered as long as nothing that
// decides it has changed.
#pragma once

#include <string>

namespace lockstep::entry {

struct PythonsTorch {
  bool started{};      ///< The interpreter could be run.
  std::string root{};  ///< The folder of its torch; empty: it has none.
};

/// Of the interpreter at `python`. An answer that named a torch is kept in the user's cache, with
/// the time of change of the interpreter, of every folder in which it looks for modules and of
/// every .pth file there: where one differs it is asked again.
PythonsTorch ask_for_torch(const std::string& python);

}  // namespace lockstep::entry
