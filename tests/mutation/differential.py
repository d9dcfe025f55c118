"""Are the mutants of equivalent.txt equivalent? Suites with other seeds, with and without them, observation by observation.

All are chosen at once: what one of them changes shows, and which it is follows from the cells that reach it. Numbers may
differ by rounding: threads add in another order, and so may a mutant. What is measured (memory) is no value.
"""

import array
import json
import shutil

NOT_COMPARED = ("n", "t", "file", "digest")
ROUNDING = {"F64": ("d", 1e-9), "F32": ("f", 1e-4), "BF16": ("H", 2e-2)}
OF_CASE = {"float32": 1e-4, "bfloat16": 2e-2}  # References begin where its ranks are.


def observations(directory, cell):
    """What a case observed, by what it is of: digest, type, file and the name in it."""
    journal = directory / "cases" / cell / "history" / "lockstep.jsonl"
    rows = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    seen = [row for row in rows if row["e"] == "observation" and not row["name"].startswith("memory/")]
    return {json.dumps({key: value for key, value in row.items() if key not in NOT_COMPARED}, sort_keys=True):
            (row["digest"], row["dtype"], directory / "cases" / cell / row["file"], row.get("key", row["name"])) for row in seen}


def numbers(path, name, dtype):
    """Of a tensor in a file of safetensors: a length, a header, the bytes."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    values = array.array(ROUNDING[dtype][0], data[8 + size + begin : 8 + size + end])
    if dtype != "BF16":
        return values
    return array.array("f", array.array("I", [bits << 16 for bits in values]).tobytes())


def alike(one, other, at_least):
    (digest, dtype, *place), (other_digest, other_dtype, *other_place) = one, other
    if digest == other_digest or dtype != other_dtype or dtype not in ROUNDING:
        return digest == other_digest
    pairs = zip(numbers(*place, dtype), numbers(*other_place, dtype), strict=True)
    allowed = max(ROUNDING[dtype][1], at_least)
    return all(a == b or abs(a - b) <= allowed * (1 + abs(a)) or (a != a and b != b) for a, b in pairs)


def difference(cell, plain, mutated):
    """The first observation that is not alike, or that one of the two lacks; empty if there is none."""
    at_least = OF_CASE.get(cell.split("/")[3], 0)
    for key in sorted(set(plain) | set(mutated)):
        if key not in plain or key not in mutated or not alike(plain[key], mutated[key], at_least):
            return key
    return ""


class Differential:
    def __init__(self, suite, mutants, runs, say, progress):
        self.suite, self.mutants, self.runs, self.say, self.progress = suite, mutants, runs, say, progress
        self.done = dict.fromkeys((mutant.number for mutant in mutants), 0)
        self.compared, self.seed = 0, 1
        self.different = []
        self.go_on()

    def go_on(self):
        """From where the last run of it stopped, if it was of the same mutants."""
        known = json.loads(self.progress.read_text()) if self.progress.exists() else {}
        if set(known.get("done", ())) == {mutant.identity() for mutant in self.mutants}:
            self.done = {mutant.number: known["done"][mutant.identity()] for mutant in self.mutants}
            self.compared, self.seed = known["compared"], known["seed"]

    def write_down(self):
        done = {mutant.identity(): self.done[mutant.number] for mutant in self.mutants}
        self.progress.write_text(json.dumps({"seed": self.seed, "compared": self.compared, "done": done}))

    def run(self, cells, chosen, name):
        if self.suite.run(cells, chosen, 120 + 10 * sum(self.suite.cost[cell] for cell in cells)) is None:
            raise SystemExit(f"seed {self.suite.seed}: time-out of {len(cells)} cells with the mutants {chosen}")
        kept = self.suite.folder / name
        shutil.rmtree(kept, ignore_errors=True)
        return (self.suite.folder / "run").rename(kept)

    def lacking(self):
        return [mutant for mutant in self.mutants if self.done[mutant.number] < self.runs and self.cells_of(mutant)]

    def cells_of(self, mutant):
        """Not those in which there is little but rounding: values far from zero in a narrow type, and what Adam makes of a
        gradient that is zero: a whole step."""
        reached = self.suite.reached.get(mutant.number, ())
        return {cell for cell in reached if ("ratio=" not in cell or "/float64/" in cell) and "optimizer=adam" not in cell}

    def one_seed(self, seed):
        self.suite.seed = seed
        cells = sorted(set().union(*(self.cells_of(mutant) for mutant in self.lacking())))
        chosen = ",".join(str(mutant.number) for mutant in self.mutants)
        plain, mutated = self.run(cells, -1, "plain"), self.run(cells, chosen, "mutated")
        for cell in cells:
            what = difference(cell, observations(plain, cell), observations(mutated, cell))
            if what:
                reaching = [mutant.key() for mutant in self.mutants if cell in self.cells_of(mutant)]
                self.different.append({"cell": cell, "seed": seed, "observation": what, "mutants": reaching})
        for mutant in self.mutants:
            self.done[mutant.number] += len(self.cells_of(mutant) & set(cells))
        self.compared += len(cells)

    def all_seeds(self):
        """A record for the report, after at least `runs` compared cases that reach each mutant."""
        while self.lacking() and not self.different:
            self.one_seed(self.seed + 1)
            self.seed += 1
            self.write_down()
            self.say(f"seed {self.seed}: {self.compared} cases compared, {len(self.lacking())} of {len(self.mutants)} mutants lack some")
        return {"seeds": self.seed - 1, "cases": self.compared, "different": self.different,
                "fewest": min((count for count in self.done.values() if count), default=0),
                "unreached": [mutant.key() for mutant in self.mutants if not self.cells_of(mutant)]}
