"""`lockstep suite` over a mutated rank host: which cells reach which mutant, and which cell finds it."""

import collections
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

ENDS = ("LS101", "LS102", "LS103", "LS301", "LS303")
AFTER_A_CRASH = 4  # Looks of 12 cells.


class Suite:
    def __init__(self, programs, folder, seed=1):
        self.program, self.folder, self.seed = programs / "lockstep", folder, seed
        listed = subprocess.run([self.program, "suite", "--list"], capture_output=True, text=True, check=True).stdout
        # Mutants and faults ask whether lockstep finds what is wrong on purpose; the rest is what others are judged by.
        self.cells = [cell for cell in listed.split("\n") if cell.count("/") >= 3 and "/mutant/" not in cell
                      and "fault=" not in cell]
        self.cost = {cell: 0.2 for cell in self.cells}
        self.reached = {}
        self.kills = {}

    def run(self, cells, mutant, limit_s, environment=None):
        """The report by cell: what was said before the time was over. None: it was over."""
        directory = self.folder / "run"
        shutil.rmtree(directory, ignore_errors=True)
        words = [self.program, "suite", "--seed", str(self.seed), "--run-dir", directory, "--format", "json"]
        for cell in cells:
            words += ["--case", cell]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **(environment or {}), "LOCKSTEP_MUTANT": str(mutant)})
        try:
            out, errors = process.communicate(timeout=limit_s)
            return {case["id"]: case for case in json.loads(out)["cases"]}
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            return None
        except ValueError:  # No mutant's doing: it is in the ranks.
            raise SystemExit(f"lockstep suite ended with {process.returncode} and no report: {errors[-2000:]}") from None

    def learn(self, say):
        """Runs every cell unmutated: what each costs and reaches. Nothing may be found."""
        marks = self.folder / "reached"
        shutil.rmtree(marks, ignore_errors=True)
        marks.mkdir(parents=True)
        cases = self.run(self.cells, -1, 3600, {"LOCKSTEP_MUTATION_REACHED": str(marks)})
        wrong = [f"{cell}: {case['reason']}" for cell, case in (cases or {}).items() if case["verdict"] == "fail"]
        if not cases or wrong:
            raise SystemExit("unmutated, the suite does not pass:\n" + "\n".join(wrong))
        # What cannot decide without a mutant (in bfloat16 a known mistake hardly shows) is no witness.
        self.cells = [cell for cell, case in cases.items() if case["verdict"] != "undecided"]
        for cell, case in cases.items():
            self.cost[cell] = max(case["wall_s"], 0.02)
        for bits in marks.glob("*.reached"):
            link = bits.with_suffix(".run")
            link = link if link.is_symlink() else bits.with_suffix(".live")
            plan = pathlib.Path(os.readlink(link)).parent / "run.json"
            cell = json.loads(plan.read_text())["case_id"]
            for number, seen in enumerate(bits.read_bytes()):
                if seen and cell in self.cells:
                    self.reached.setdefault(number, set()).add(cell)
        shutil.rmtree(marks)
        say(f"{len(cases)} cells reach {len(self.reached)} mutants")

    def order(self, mutant):
        """Cells that reach it, those first that have found most in its file for their time."""
        def worth(cell):
            return (self.kills.get((mutant.file, cell), 0) + 0.1) / (self.cost[cell] + 0.1)
        return sorted(self.reached.get(mutant.number, ()), key=worth, reverse=True)

    def time_out(self, cells, limit_s):
        """A machine that is as slow without the mutant says nothing of it."""
        if self.run(cells, -1, limit_s) is None:
            return {"outcome": "undecided", "cell": cells[0], "reason": "unmutated, it takes as long"}
        return {"outcome": "time-out", "cell": cells[0]}

    def judge(self, mutant):
        """What became of it: a record for the report. A finding says more than a crash, so after one it looks on."""
        begun = time.monotonic()
        cells = self.order(mutant)
        record = {"outcome": "survived", "cells": len(cells)}
        if not cells:
            record["reason"] = "no cell reaches it"
        undecided = None
        size, looks = 4, AFTER_A_CRASH
        while cells and looks > 0 and record["outcome"] in ("survived", "raised", "crash"):
            some, cells = cells[:size], cells[size:]
            size = 12
            limit_s = 30 + 10 * sum(self.cost[cell] for cell in some)
            cases = self.run(some, mutant.number, limit_s)
            if cases is None:
                late = self.time_out(some, limit_s)
                if late["outcome"] == "time-out":
                    record |= late if record["outcome"] == "survived" else {}
                    break
                undecided, looks = undecided or late, looks - 1  # A busy machine may be less so later.
                continue
            for cell in some:
                case = cases.get(cell, {"verdict": "pass"})
                if case["verdict"] == "fail":
                    self.take(record, cell, findings_of(self.folder / "run", case), mutant)
                if case["verdict"] == "undecided" and undecided is None:
                    undecided = {"outcome": "undecided", "cell": cell, "reason": case["reason"]}
            if record["outcome"] in ("raised", "crash"):
                looks -= 1
                cells = spread(cells)
        if record["outcome"] == "survived" and undecided:
            record |= undecided
        record["seconds"] = round(time.monotonic() - begun, 1)
        return record

    def take(self, record, cell, findings, mutant):
        """What the suite says of a cell: a finding, an exception with its text and line, or an end without."""
        codes = [finding["code"] for finding in findings] or ["?"]
        outcome = "finding"
        if codes[0] in ENDS:
            outcome = "raised" if "raised" in findings[0]["headline"] else "crash"
        record.setdefault("found_by", []).append(cell)
        worth = ["survived", "crash", "raised", "finding"]
        if worth.index(outcome) > worth.index(record["outcome"]):
            record |= {"outcome": outcome, "cell": cell, "codes": codes}
        self.kills[mutant.file, cell] = self.kills.get((mutant.file, cell), 0) + (1 if outcome == "finding" else 0.2)


def spread(cells):
    """One of each scenario and implementation first: what crashes in one may be wrong in silence in another."""
    seen = collections.Counter()
    turns = {}
    for cell in cells:
        kind = tuple(cell.split("/")[:2])
        turns[cell] = seen[kind]
        seen[kind] += 1
    return sorted(cells, key=turns.get)


def findings_of(directory, case):
    report = json.loads((directory / "report.json").read_text())
    return [finding for finding in report["findings"] if finding.get("case") == case["id"]]
