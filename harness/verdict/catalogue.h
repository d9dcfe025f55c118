// Every code lockstep can report, and what `lockstep explain CODE` says of it. A code is never
// reused: one that is retired keeps its line.
#pragma once

#include <span>
#include <string_view>

namespace lockstep {

struct CatalogueEntry {
  std::string_view code{};     ///< "LS301".
  std::string_view slug{};     ///< "absent-rank": the code as a word.
  std::string_view title{};    ///< One line.
  std::string_view meaning{};  ///< What was seen, and what it implies.
  std::string_view causes{};   ///< Usual causes, most frequent first; one per line.
  std::string_view look_at{};  ///< What to look at next; one per line.
};

/// Ascending by code.
std::span<const CatalogueEntry> catalogue();

/// Null if there is no such code. Accepts the code ("LS301", "ls301") or the slug.
const CatalogueEntry* find_code(std::string_view code_or_slug);

}  // namespace lockstep
