// The catalogue in parts, so that no file grows without end. Private to catalogue*.cc.
#pragma once

#include <span>

#include "harness/verdict/catalogue.h"

namespace lockstep {

std::span<const CatalogueEntry> catalogue_of_ends_and_matching();  // LS1xx, LS2xx
std::span<const CatalogueEntry> catalogue_of_progress();           // LS3xx, LS9xx
std::span<const CatalogueEntry> catalogue_of_data();               // LS4xx, LS5xx

}  // namespace lockstep
