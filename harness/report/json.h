// report.json: the document that machines read (`lockstep-report/2`), written and read.
#pragma once

#include <string>
#include <string_view>

#include "harness/base/error.h"
#include "harness/report/baseline.h"
#include "harness/verdict/report.h"

namespace lockstep {

/// The document with the fields in a fixed order; ends with a line feed. Numbers that JSON cannot
/// say are the strings "nan", "inf" and "-inf"; bytes that are no UTF-8 become U+FFFD. Findings of
/// cases carry the id of their case, lines of sources their text where `line_text` has it.
std::string render_json(const Report& report, const LineText& line_text = {});

/// Reads a document of this major version: a field that is absent keeps its default, an unknown one
/// is passed over. The document does not hold what a checker said of a single case, expected
/// culprits, or run directories. Errors: kMalformedHistory, naming the field.
Result<Report> parse_report(std::string_view text);

}  // namespace lockstep
