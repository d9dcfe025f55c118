"""Writes docs/conformance.md: what each implementation does in each cell of the suite, and what PyTorch does in silence.

    python3 -B tests/subjects/conformance.py accelerate=PYTHON lightning=PYTHON [--check]

It takes about seven minutes (LOCKSTEP_PROGRAM, LOCKSTEP_PYTHON); PYTHON is one that has the library: `ci/dev third-party`
makes such. With --check nothing is written: status 1 where the page is not what was found now. A deviation of PyTorch's that EXPLAINED
does not explain, and an explanation of what deviates no longer, is status 1, too."""

import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap

from suite import FIXTURES, PROGRAM, PYTHON, silence

PAGE = FIXTURES.parents[1] / "docs" / "conformance.md"
SILENCE = FIXTURES / "silence.py"
RUNS = {
    "torch": ("--subject", "torch", "--python", PYTHON),
    "ddp": ("--implementation", "ddp", "--implementation", "distributed"),
    "bucketed_ddp": ("--implementation", "bucketed_ddp"),
}
# Of a run, the cells of these implementations; all of them where there are none.
COLUMNS = {
    "torch": ("torch", ()),
    "accelerate": ("accelerate", ("accelerate.wrap_prepared", "accelerate.PreparedLoader")),
    "split_batches": ("accelerate", ("accelerate.SplitLoader",)),
    "even_batches=False": ("accelerate", ("accelerate.UnevenLoader",)),
    "dispatch_batches": ("accelerate", ("accelerate.DispatchedLoader",)),
    "lightning": ("lightning", ()),
    "ddp": ("ddp", ()),
    "bucketed_ddp": ("bucketed_ddp", ()),
}
# What only hosts of ours are asked: faults, and what a sampler of ours declares beyond PyTorch's.
NOT_OF_SUBJECTS = ("fault=",)
KINDS = ("dp", "sync_bn")  # What PyTorch has and this machine has not.
CHANCE = "deviates by chance"

# Scenario and options of a cell: whether chance decides, what happens, and PyTorch's own words.
EXPLAINED = {
    ("gradient-equivalence", "ignored=bias, model=linear_int, rule=exact, unwrapped=on"): (
        False,
        "A parameter of the outermost module that is to be ignored, given in the documented format (`.bias`): it is not reduced, but "
        "gets rank 0's value at construction, where DDP compares it with `bias`. Given as `bias` it is left alone at construction, "
        "and reduced.",
        '"Expected format for parameters is the fully qualified name: {module_name}.{param_name}" '
        "(`_set_params_and_buffers_to_ignore_for_model`)",
    ),
    ("buffer-broadcast", "broadcast_buffers=on, forwards=2, model=ema"): (
        False,
        "Two forwards before a backward, of a model that computes with its buffer: the second broadcast writes over what the first "
        "forward has saved, within `_unsafe_preserve_version_counter`, so that autograd does not notice. The gradient is wrong. "
        "Ours refuses.",
        '"Buffers (e.g. BatchNorm stats) are broadcast from the module in process of rank 0, to all other replicas in the system in '
        'every iteration." Of two forwards in an iteration nothing is said.',
    ),
    ("uneven-batches", "batches=3/0/2, find_unused_parameters=on, join=active, model=mixed"): (
        True,
        "A rank that joins without any batch tells the others which parameters it has used, out of memory that nobody has written "
        "(`map_of_a_rank_without_a_batch` below): a parameter that no rank uses then gets zeros.",
        '"It is a tensor where index i = 1 if the Variable with that index has been used." (`reducer.hpp`)',
    ),
}


def report_of(arguments, directory):
    done = subprocess.run([PROGRAM, "suite", *arguments, "--run-dir", directory, "--color", "never"], check=False, stdout=subprocess.DEVNULL)
    if done.returncode not in (0, 1, 2):
        raise SystemExit(f"lockstep suite {' '.join(arguments)}: status {done.returncode}")
    return json.loads((pathlib.Path(directory) / "report.json").read_text())


def row_of(case):
    """Scenario and options; worlds come together, and float64 is not told."""
    options = case["id"].split("/", 4)[4:] if case["id"].count("/") >= 4 else []
    words = ([case["dtype"]] if case["dtype"] not in ("float64", "") else []) + [o.replace(",", ", ") for o in options]
    return case["scenario"], ", ".join(words)


def results_of(report, parts):
    """Of each row: verdicts by world, codes, and why it was not asked."""
    rows = {}
    for case in report["cases"]:
        if parts and not any(f"/{part}" in case["id"] for part in parts):
            continue
        if case["mutants"] or case["id"].count("/") == 1 and case["scenario"] not in KINDS:
            continue  # A proof of the checks, or a scenario that has no question for it.
        row = rows.setdefault(row_of(case), {"worlds": {}, "codes": set(), "reason": ""})
        row["worlds"][case["ranks"]] = case["verdict"]
        row["codes"] |= {finding["code"] for finding in report["findings"] if finding["case"] == case["id"]}
        row["reason"] = row["reason"] or case["reason"]
    return rows


def asked(row):
    """Scenario and names of options."""
    return row[0], {option.partition("=")[0] for option in row[1].split(", ")}


def told(row, name, results):
    result = results.get(row)
    if result is None:
        # A reason stands once in a report, not for every cell that asks for the same.
        alike = [key for key, r in results.items() if "skipped" in r["worlds"].values() and asked(key) == asked(row)]
        return "not declared" if alike else "-"
    failed = [world for world, verdict in sorted(result["worlds"].items()) if verdict == "fail"]
    if name == "torch" and EXPLAINED.get(row, (False,))[0]:
        return f"[{CHANCE}](#{anchor(row)})"
    if failed:
        words = f"deviates ({', '.join(sorted(result['codes']))})"
        return f"[{words}](#{anchor(row)})" if name == "torch" else words
    if set(result["worlds"].values()) == {"pass"}:
        return "pass"
    return result["reason"].split(". Tried all the same")[0].replace("not declared: ", "not declared: ", 1) or "undecided"


def anchor(row):
    return f"{row[0]}-{1 + [key for key in EXPLAINED if key[0] == row[0]].index(row)}" if row in EXPLAINED else "deviations"


def unexplained(columns):
    failed = {name: {row for row, result in rows.items() if "fail" in result["worlds"].values()} for name, rows in columns.items()}
    due = {row for row, (by_chance, *_rest) in EXPLAINED.items() if not by_chance}
    explained = {"torch": set(EXPLAINED)}
    missing = [f"no explanation of {row}: {name}" for name, rows in failed.items() for row in rows - explained.get(name, set())]
    return missing + [f"deviates no longer: {row}" for row in due - failed["torch"]]


def docstring(text, name):
    body = text.split(f"def {name}():\n", 1)[1]
    return " ".join(body.split('"""', 2)[1].split())


def paragraph(text):
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def page(columns, versions, silent):
    rows = [row for row in dict.fromkeys(row for results in columns.values() for row in results)
            if not any(word in row[1] for word in NOT_OF_SUBJECTS)]
    lines = [
        "# What implementations do", "",
        paragraph(
            "Made by `python3 -B tests/subjects/conformance.py`. `torch` is `lockstep suite --subject torch` at "
            f"{versions['torch']}, `accelerate` and `lightning` are what {versions['accelerate']} and {versions['lightning']} "
            "make of a model and a loader (`--subject accelerate`, `lightning`), `split_batches`, `even_batches=False` and "
            "`dispatch_batches` accelerate's options; `ddp` (with the sampler `distributed`) and `bucketed_ddp` are ours, see [suite](suite.md). "
            "World sizes 2, 3 and 5 come together in a row; -: not asked. No case is loosened for PyTorch's classes: what they do "
            "not declare is not asked, and what deviates from what they declare stands here with [their own words](#deviations)."
        ), "",
        "| scenario | options | " + " | ".join(columns) + " |", "|---|---|" + "---|" * len(columns),
    ]
    for row in rows:
        cells = [told(row, name, results) for name, results in columns.items()]
        if set(cells) != {"-"}:
            lines.append(f"| {row[0]} | {f'`{row[1]}`' if row[1] else ''} | " + " | ".join(cells) + " |")
    lines += ["", "## Deviations", ""]
    for row, (_by_chance, what, words) in EXPLAINED.items():
        lines += [f"### {' '.join(anchor(row).rsplit('-', 1))}", "", f"`{row[1]}`", "", paragraph(what), "", paragraph(f"PyTorch: {words}"), ""]
    lines += [
        "## In silence", "",
        paragraph(
            "What DistributedDataParallel and DistributedSampler do without an error or a warning. Each row is a function of "
            "`fixtures/subjects/silence.py`, which shows it on two ranks:"
        ), "",
        "```console", "$ torchrun --nproc-per-node 2 fixtures/subjects/silence.py second_backward", "```", "",
        "| function | what happens | at " + versions["torch"] + " |", "|---|---|---|",
    ]
    lines += [f"| `{name}` | {words} | {'so' if as_told else 'no longer so'} |" for name, words, as_told in silent]
    return "\n".join(lines) + "\n"


def version_of(python, library):
    said = subprocess.run([python, "-c", f"import {library}; print({library}.__version__)"], check=True, capture_output=True, text=True)
    return f"{library} {said.stdout.strip()}"


def main(arguments):
    check = "--check" in arguments
    pythons = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    if set(pythons) != {"accelerate", "lightning"}:
        raise SystemExit(__doc__)
    runs = RUNS | {name: ("--subject", name, "--python", python) for name, python in pythons.items()}
    with tempfile.TemporaryDirectory(prefix="lockstep-conformance-") as scratch:
        reports = {name: report_of(words, f"{scratch}/{name}") for name, words in runs.items()}
    columns = {name: results_of(reports[run], parts) for name, (run, parts) in COLUMNS.items()}
    text = SILENCE.read_text()
    silent = [(row["name"], docstring(text, row["name"]), row["as_told"]) for row in silence()]
    versions = {"torch": reports["torch"]["versions"]["torch"].split("+")[0]}
    versions |= {name: version_of(python, name) for name, python in pythons.items()}
    text = page(columns, versions, silent)
    problems = unexplained(columns) + [f"no longer so: {name}" for name, _words, as_told in silent if not as_told]
    if check and text != PAGE.read_text():
        problems.append(f"{PAGE} is not what was found now")
    elif not check:
        PAGE.write_text(text)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
