// The findings of a report in the forms that code hosts and CI systems show beside the source.
// `root` is the folder of the repository: files below it are named relative to it.
#pragma once

#include <string>

#include "harness/verdict/report.h"

namespace lockstep {

/// SARIF 2.1.0. A finding lies at its first culprit's line, or else at the first line it has; other
/// ranks are related locations, and each rank is a thread flow. Undecided is a result of kind
/// "open". The fingerprint is made of code, operation, file and function, so that a line that moves
/// is no new finding.
std::string render_sarif(const Report& report, const std::string& root);

/// Commands of GitHub Actions, one a line: ::error file=...,line=...,title=...::text
std::string render_github(const Report& report, const std::string& root);

/// A GitLab code quality report.
std::string render_gitlab(const Report& report, const std::string& root);

/// A summary for people: verdict, findings, checks that could not decide.
std::string render_markdown(const Report& report);

}  // namespace lockstep
