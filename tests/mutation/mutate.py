#!/usr/bin/env python3
"""Systematic mutation of the implementations: does `lockstep suite` find what it was not written for?

  mutate.py [--count 400] [--seed 1] [--file NAME] [--operator NAME]   builds, judges, and says so; goes on where it was
  mutate.py --by-hand          the bugs of by_hand.py instead
  mutate.py --report           writes the page and the JSON of what has been judged
  mutate.py --checkers         mutants of checkers/ and harness/model/ against unit tests, saved runs, the suite's own mutants
  mutate.py --equivalents [--runs 1000]  those of equivalent.txt: cases with them and without, value for value

What was judged is kept in BUILD/mutate/NAME/results.jsonl by what a mutant is, not by its number or line: a run that was
broken off, or another count, or one after an edit of another file, goes on from there. --living judges those anew that
lived, as after new cells; --again all.
"""

import argparse
import collections
import json
import pathlib
import sys

import parser_environment  # noqa: F401. First: from here on there is a parser.
import report
from by_hand import BUGS
from checker_tests import PROGRAMS, CheckerTests
from compiled import Builder
from differential import Differential
from operators import mutants_of
from sampling import in_drawn_order
from source import Edit, Mutant, Source, of_bytes
from suite import Suite

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEFT_OUT = {"process_group_nccl.cc", "process_group.cc"}  # CUDA; and what is only how ranks meet.


def say(text):
    print(f"mutate: {text}", file=sys.stderr, flush=True)


def implementation_files(chosen):
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "fixtures/implementations").glob("*.cc")
                   if path.name not in LEFT_OUT)
    return [file for file in files if not chosen or any(name in file for name in chosen)]


def checker_files(chosen):
    files = sorted(str(path.relative_to(ROOT)) for folder in ("checkers", "harness/model")
                   for path in (ROOT / folder).rglob("*.cc"))
    return [file for file in files if not chosen or any(name in file for name in chosen)]


def drawn(files, options):
    found = [mutant for file in files for mutant in mutants_of(Source(ROOT, file))
             if not options.operator or mutant.operator in options.operator]
    say(f"{len(found)} mutants in {len(files)} files")
    return in_drawn_order(found, options.seed)


def by_hand(chosen):
    sources, bugs = {}, {}
    for name, file, old, new in BUGS:
        file = f"fixtures/{file}.cc" if "/" in file else f"fixtures/implementations/{file}.cc"
        if chosen and not any(part in file for part in chosen):
            continue
        source = sources.setdefault(file, Source(ROOT, file))
        form = "statement" if old.endswith(";") else "expression"
        node, start, end = of_bytes(source, old, form)
        bug = bugs.setdefault(name, Mutant(file, node.start_point[0] + 1, "by hand", old, new, [], -1, name))
        bug.edits.append(Edit(start, end, form, new))
    return list(bugs.values())


def numbered(mutants):
    by_file = collections.defaultdict(list)
    for number, mutant in enumerate(mutants):
        mutant.number = number
        by_file[mutant.file].append(mutant)
    return mutants, by_file


def compiling(builder, ordered, count):
    """The first `count` of the mutants that compile; of a detach() most do not."""
    done, kept, number = 0, [], 0
    while len(kept) < count and done < len(ordered):
        some = ordered[done : done + 2 * (count - len(kept)) + 10]
        done += len(some)
        by_file = collections.defaultdict(list)
        for mutant in some:
            mutant.number, number = number, number + 1
            by_file[mutant.file].append(mutant)
        fit = {mutant.number for mutants in builder.sift(by_file).values() for mutant in mutants}
        kept += [mutant for mutant in some if mutant.number in fit]
    return kept[:count]


def judged(path):
    if not path.exists():
        return {}
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {record["identity"]: record for record in records if "identity" in record}


def judge_all(mutants, judge, path):
    known = judged(path)
    with path.open("a") as results:
        for done, mutant in enumerate(mutants):
            if mutant.identity() not in known:
                record = {"mutant": mutant.key(), "identity": mutant.identity(), "name": mutant.name, "file": mutant.file,
                          "line": mutant.line, "operator": mutant.operator, **judge(mutant)}
                known[mutant.identity()] = record
                results.write(json.dumps(record) + "\n")
                results.flush()
            record = known[mutant.identity()]
            say(f"{done + 1} of {len(mutants)} done: {record['outcome']:<9} {' '.join(record.get('codes', []))} "
                f"{mutant.name or mutant.key()} {record.get('cell', record.get('reason', ''))}")
    return [known[mutant.identity()] for mutant in mutants]


def called_equivalent(files):
    told = report.equivalents()
    mutants = [mutant for file in files for mutant in mutants_of(Source(ROOT, file)) if mutant.identity() in told]
    gone = set(told) - {mutant.identity() for mutant in mutants}
    if gone:
        raise SystemExit("equivalent.txt has what is no mutant any more:\n" + "\n".join(sorted(gone)))
    return mutants


def compare_equivalents(suite, mutants, runs, folder):
    suite.learn(say)
    told = Differential(suite, mutants, runs, say, folder / "compared.json").all_seeds()
    (folder / "differential.json").write_text(json.dumps(told, indent=1) + "\n")
    print(f"{len(mutants)} mutants called equivalent, {told['cases']} cases of {told['seeds']} seeds with them and without,"
          f" {told['fewest']} or more that reach each: {len(told['different'])} differ")
    for row in told["different"][:10]:
        print(f"- {row['cell']} seed {row['seed']}: {row['observation']}\n  reached: {'; '.join(row['mutants'])}")
    for mutant in told["unreached"]:
        print(f"- no cell reaches {mutant}")
    return 1 if told["different"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--name", help="of the results, below BUILD/mutate")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--file", action="append", default=[])
    parser.add_argument("--operator", action="append", default=[])
    parser.add_argument("--by-hand", action="store_true")
    parser.add_argument("--checkers", action="store_true")
    parser.add_argument("--equivalents", action="store_true")
    parser.add_argument("--runs", type=int, default=1000, help="of cases that reach a mutant, for --equivalents")
    parser.add_argument("--at-least", type=float, default=0, help="percent to be killed, else the status is 1")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--living", action="store_true")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    what = next((name for name in ("by-hand", "checkers", "equivalents") if getattr(options, name.replace("-", "_"))), "suite")
    build = options.build.resolve()
    folder = build / "mutate" / (options.name or what)
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.jsonl"
    if options.again:
        for path in (results, folder / "compared.json"):
            path.unlink(missing_ok=True)
    if options.living:
        killed = [record for record in judged(results).values() if record["outcome"] in report.KILLED]
        results.write_text("".join(json.dumps(record) + "\n" for record in killed))
    if not options.report:
        builder = Builder(ROOT, build, folder, options.jobs, say)
        files = checker_files(options.file) if options.checkers else implementation_files(options.file)
        if options.by_hand:
            mutants, by_file = numbered(by_hand(options.file))
        elif options.equivalents:
            mutants, by_file = numbered(called_equivalent(files))
        else:
            mutants, by_file = numbered(compiling(builder, drawn(files, options), options.count))
        programs = builder.link(by_file, PROGRAMS if options.checkers else ["lockstep_rank_host"])
        if options.equivalents:
            return compare_equivalents(Suite(programs, folder), mutants, options.runs, folder)
        if options.checkers:
            judge = CheckerTests(programs, folder).judge
        else:
            suite = Suite(programs, folder, options.seed)
            suite.learn(say)
            judge = suite.judge
        records = judge_all(mutants, judge, results)
    else:
        records = list(judged(results).values())
    (folder / "report.json").write_text(json.dumps(report.summary(records), indent=1) + "\n")
    print(report.page(records), end="")
    return 0 if report.summary(records)["killed_percent"] >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
