// Included before every mutated source: which mutant this process is, if any.
#pragma once

namespace lockstep::mutation {

/// Whether the mutant `number` was chosen for this process (LOCKSTEP_MUTANT). Notes that its place
/// was reached, where that is asked for (LOCKSTEP_MUTATION_REACHED, a folder).
bool chosen(int number);

}  // namespace lockstep::mutation
