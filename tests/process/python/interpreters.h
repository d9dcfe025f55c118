// The CPythons of a known version on this host: that of the build, of PATH, and those that pyenv
// keeps.
#pragma once

#include <string>
#include <vector>

namespace lockstep::test {

std::vector<std::string> interpreters();

}  // namespace lockstep::test
