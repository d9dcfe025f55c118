// What `lockstep explain` prints of a code: its page in docs/findings, which is part of the
// program.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "harness/verdict/codes.h"

namespace lockstep {

struct Page {
  std::string_view code{};  ///< "LS301".
  std::string_view text{};  ///< Markdown, as in docs/findings/LS301.md.
};
extern const Page kPages[];  // In the source that ci/embed_pages.cmake writes.
extern const std::size_t kPageCount;

/// Empty if there is no such page.
std::string_view page_of(std::string_view code);

/// A page as text for a terminal: headings without marks, what stands below them indented, links as
/// their words. Lines stay as they are broken.
std::string plain_text(std::string_view page);

/// Accepts the code ("LS301", "ls301") or its word ("absent-rank"). Null if there is no such code.
const CodeRow* find_row(std::string_view code_or_slug);

}  // namespace lockstep
