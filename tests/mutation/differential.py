"""Are the mutants of equivalent.txt equivalent? Suites with other seeds, with and without them, observation by observation.

All are chosen at once: what one of them changes shows, and which it is follows from the cells that reach it. A value that
differs between two runs without mutants says nothing and is left out; what is measured (memory) is no value. A mutant whose
reason is rounding gives the last bits otherwise: it is judged by the suite, and not compared.
"""

import json

NOT_COMPARED = ("n", "t", "file")


def observations(directory, cell):
    """What a case observed, in values or digests, in an order of its own: ranks answer as they come."""
    journal = directory / "cases" / cell / "history" / "lockstep.jsonl"
    rows = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    seen = [row for row in rows if row["e"] == "observation" and not row["name"].startswith("memory/")]
    kept = [{key: value for key, value in row.items() if key not in NOT_COMPARED} for row in seen]
    return sorted(json.dumps(row, sort_keys=True) for row in kept)


class Differential:
    def __init__(self, suite, mutants, runs, say):
        self.suite, self.mutants, self.runs, self.say = suite, mutants, runs, say
        self.done = dict.fromkeys((mutant.number for mutant in mutants), 0)
        self.compared = 0
        self.unsteady = set()
        self.different = []

    def observed(self, cells, chosen, seed):
        self.suite.seed = seed
        if self.suite.run(cells, chosen, 120 + 10 * sum(self.suite.cost[cell] for cell in cells)) is None:
            raise SystemExit(f"seed {seed}: time-out of {len(cells)} cells with the mutants {chosen}")
        return {cell: observations(self.suite.folder / "run", cell) for cell in cells}

    def lacking(self):
        return [mutant for mutant in self.mutants if self.done[mutant.number] < self.runs and self.cells_of(mutant)]

    def cells_of(self, mutant):
        return self.suite.reached.get(mutant.number, set())

    def one_seed(self, seed):
        cells = sorted(set().union(*(self.cells_of(mutant) for mutant in self.lacking())) - self.unsteady)
        chosen = ",".join(str(mutant.number) for mutant in self.mutants)
        plain, mutated = self.observed(cells, -1, seed), self.observed(cells, chosen, seed)
        differing = [cell for cell in cells if plain[cell] != mutated[cell]]
        again = self.observed(differing, -1, seed) if differing else {}
        for cell in differing:
            if again[cell] != plain[cell]:
                self.unsteady.add(cell)
                continue
            row = min(set(plain[cell]) ^ set(mutated[cell]))
            reaching = [mutant.key() for mutant in self.mutants if cell in self.cells_of(mutant)]
            self.different.append({"cell": cell, "seed": seed, "observation": row, "mutants": reaching})
        for mutant in self.mutants:
            self.done[mutant.number] += len((self.cells_of(mutant) & set(cells)) - self.unsteady)
        self.compared += len(cells)

    def all_seeds(self):
        """A record for the report, after at least `runs` compared cases that reach each mutant."""
        seed = 1
        while self.lacking() and not self.different:
            seed += 1
            before = dict(self.done)
            self.one_seed(seed)
            self.say(f"seed {seed}: {self.compared} cases compared, {len(self.lacking())} of {len(self.mutants)} mutants lack some")
            if self.done == before:
                break
        return {"seeds": seed - 1, "cases": self.compared, "unsteady": sorted(self.unsteady), "different": self.different,
                "fewest": min(self.done.values(), default=0),
                "unreached": [mutant.key() for mutant in self.mutants if not self.cells_of(mutant)]}
