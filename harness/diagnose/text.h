// A diagnosis as text for people, and as the document that machines read.
#pragma once

#include <string>

#include "harness/diagnose/look.h"
#include "harness/diagnose/merge.h"
#include "harness/report/human.h"

namespace lockstep::diagnose {

/// `name`: of the job. `stacks`: one for each group of equal ranks, too.
std::string render_text(const Diagnosis& diagnosis, const Look& look, const std::string& name,
                        bool stacks, const HumanOptions& options);

/// `lockstep-diagnosis/1`; ends with a line feed.
std::string render_json(const Diagnosis& diagnosis, const Look& look, const std::string& name,
                        double took_s);

}  // namespace lockstep::diagnose
