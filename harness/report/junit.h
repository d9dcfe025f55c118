// JUnit XML: fail is <failure>, undecided is <error> (never skipped), skipped is <skipped>.
#pragma once

#include <string>

#include "harness/verdict/report.h"

namespace lockstep {

/// One <testsuite> per scenario with its cases; for a single run one with its checks. A verdict
/// that no case or check explains (interrupted, nothing ran) has a test case of its own. Valid XML
/// whatever the strings hold.
std::string render_junit(const Report& report);

}  // namespace lockstep
