// Included before every mutated source: which mutants this process is, if any.
#pragma once

#include <type_traits>

namespace lockstep::mutation {

/// Whether the mutant `number` (0 to 65,535) is among those chosen for this process
/// (LOCKSTEP_MUTANT, numbers with commas between them; -1 is none). Notes that its place was
/// reached, where that is asked for (LOCKSTEP_MUTATION_REACHED, a folder).
bool chosen(int number);

/// What a mutated expression has to be: what the original is, so that nothing around it changes its
/// meaning, and a mutant that cannot be that does not compile.
template <class Original, class Mutated>
using Like =
    std::conditional_t<std::is_same_v<Original, Mutated>, Original, std::decay_t<Original>>;

}  // namespace lockstep::mutation
