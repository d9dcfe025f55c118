#!/usr/bin/env python3
"""What PyTorch's own tools and lockstep say of the same programs, as two tables: docs/comparison.md.

    comparison.py LOCKSTEP [--python PYTHON] [--tables hangs numbers] [--rows PART ...] [--tools TOOL ...]
                  [--traincheck PYTHON] [--output FILE] [--state FILE]

hangs: of each code a bad program of fixtures/programs that has it, on two ranks over Gloo:
 - with TORCH_DISTRIBUTED_DEBUG=DETAIL: the last exception of each rank, or how it ended;
 - with the Flight Recorder on: every rank writes its record every two seconds and when it ends, and the analyzer
   of that torch reads the last ones. Where it raises, it is asked again with the groups written into the records by hand;
 - under lockstep: code, culprits and headline of the finding.
numbers: programs that end with status 0 and wrong numbers, see comparison_watched.py.
Each run is ended after --limit seconds. Resumable: what was seen is kept in --state. A table that --tables leaves out stays
as it is in the document.
"""

import argparse
import json
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile

import comparison_watched
from comparison_ranks import ROOT, WORLD, last_exception, run_ranks, seen_by_lockstep, seen_with, short

import table

TOOLS = ("detail", "recorder", "lockstep")

# Imported by each rank before its program: nothing else tells the Flight Recorder to write.
RECORDER = """
import atexit, os, sys, threading, time
def write():
    try:
        record = sys.modules["torch"]._C._distributed_c10d._dump_fr_trace()
    except (KeyError, AttributeError):  # It is not there yet.
        return
    path = f"{os.environ['RECORDS']}/rank_{os.environ['RANK']}"
    open(path + "~", "wb").write(record)
    os.rename(path + "~", path)
def write_on():
    while True:
        time.sleep(2)
        write()
if "RANK" in os.environ and "RECORDS" in os.environ:
    threading.Thread(target=write_on, daemon=True).start()
    atexit.register(write)
"""


def chosen(parts: list) -> list:
    bad = [row for row in table.ROWS if row.code and WORLD in row.worlds and not row.launcher and row.program.endswith(".py")]
    if parts:
        return [row for row in bad if any(part in row.name for part in parts)]
    bad.sort(key=lambda row: "{build}" in row.arguments)  # With a stand-in for what is not there only where it has to be.
    return [row for i, row in enumerate(bad) if row.code not in {earlier.code for earlier in bad[:i]}]


def seen_by_recorder(command: list, limit: float, python: str) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        site, records = pathlib.Path(scratch) / "site", pathlib.Path(scratch) / "records"
        site.mkdir(), records.mkdir()
        (site / "sitecustomize.py").write_text(RECORDER)
        run_ranks(command, limit, {"TORCH_FR_BUFFER_SIZE": "2000", "PYTHONPATH": str(site), "RECORDS": str(records)})
        for unfinished in records.glob("*~"):
            unfinished.unlink()
        count = len(list(records.iterdir()))
        if count < WORLD:
            return f"{count} of {WORLD} ranks lived to write a record"
        raised = analyze(records, python)
        if not raised.startswith("raises "):
            return raised
        for path in records.iterdir():
            record = pickle.loads(path.read_bytes())
            groups = {tuple(entry["process_group"]) for entry in record.get("entries", [])}
            ranks = str(list(range(WORLD)))
            record["pg_config"] = {name: {"name": name, "desc": desc, "ranks": ranks} for name, desc in groups}
            path.write_bytes(pickle.dumps(record, protocol=2))
        return f"{raised}; with the groups filled in: {analyze(records, python)}"


def analyze(records: pathlib.Path, python: str) -> str:
    analyzer = "from torch.distributed.flight_recorder.fr_trace import main; main()"
    done = subprocess.run([python, "-c", analyzer, str(records), "--prefix", "rank_"], capture_output=True, text=True,
                          timeout=120)
    if done.returncode != 0:
        return f"raises {last_exception(done.stderr) or 'an error'}"
    text = done.stdout + done.stderr  # It logs what it finds.
    said = [first or second for first, second in re.findall(r"^(?:error msg: (.*)|(missing ranks: .*))$", text, re.MULTILINE)]
    lines = sorted({f"{file}:{line}" for file, line in re.findall(r"/fixtures/programs/(\S+\.py):(\d+)$", text, re.MULTILINE)})
    return short("; ".join(dict.fromkeys(said))) + f" ({', '.join(lines) or 'no line'})" if said else "nothing wrong"


def ask(row, tool: str, options, build: pathlib.Path) -> str:
    command = [options.python, "-B", str(table.PROGRAMS / row.program), *row.arguments.format(build=build).split()]
    if tool == "lockstep":
        return seen_by_lockstep(options.lockstep, row.options, command)
    if tool == "recorder":
        return seen_by_recorder(command, options.limit, options.python)
    return seen_with({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, command, options.limit)


def page(torch: str) -> list:
    return [
        "# What other tools say of the same programs",
        "",
        f"Programs of `fixtures/programs`, two ranks over Gloo, torch {torch}; a program of each code. Written by",
        "`tests/bench/comparison.py`, which says how each tool was asked. Expected is what the table of the programs holds:",
        "code and culprits, none where two ranks leave it open which of them is wrong.",
        "",
        "| program | expected | `TORCH_DISTRIBUTED_DEBUG=DETAIL` | Flight Recorder and its analyzer | lockstep |",
        "|---|---|---|---|---|",
    ]


def lines_of(rows: list, tools: tuple, seen: dict) -> list:
    lines = []
    for row in rows:
        said = seen.get(row.name)
        if said:
            code, culprits = row.expected(WORLD)
            expected = f"{code}, {'rank ' + ', '.join(map(str, sorted(culprits))) if culprits else 'nobody'}"
            cells = (f"`{row.name}`", expected, *(said.get(tool, "not asked") for tool in tools))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def document(seen: dict, tables: list, torch: str, before: str) -> str:
    """Both tables; one that was not asked for stays as it is in the document of before."""
    hangs, _, numbers = before.partition(f"\n{comparison_watched.HEADING}\n")
    if "hangs" in tables:
        hangs = "\n".join([*page(torch), *lines_of(chosen([]), TOOLS, seen)]) + "\n"
    if "numbers" in tables:
        rows = lines_of(comparison_watched.chosen([]), comparison_watched.TOOLS, seen)
        numbers = "\n".join([*comparison_watched.page(torch), *rows]) + "\n"
    return hangs + (f"\n{comparison_watched.HEADING}\n" + numbers if numbers else "")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tables", nargs="*", choices=("hangs", "numbers"), default=["hangs", "numbers"])
    parser.add_argument("--rows", nargs="*", default=[], help="only programs whose name has this part")
    parser.add_argument("--tools", nargs="*", default=[], help="only these, by their names in the state")
    parser.add_argument("--limit", type=float, default=25, help="seconds for each run")
    parser.add_argument("--traincheck", default="", help="a Python with traincheck and the same torch")
    parser.add_argument("--traincheck-limit", type=float, default=600, help="seconds for each of its commands")
    parser.add_argument("--state", type=pathlib.Path, default=ROOT / "build" / "comparison.json")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "comparison.md")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    build = pathlib.Path(options.lockstep).resolve().parents[1]
    seen = json.loads(options.state.read_text()) if options.state.exists() else {}

    def ask_all(rows: list, tools: tuple, asks) -> None:
        for row, tool in ((row, tool) for tool in tools for row in rows):
            if tool in seen.setdefault(row.name, {}) or (options.tools and tool not in options.tools):
                continue
            if tool == "traincheck" and not options.traincheck:
                continue
            seen[row.name][tool] = asks(row, tool)
            options.state.write_text(json.dumps(seen, indent=1))
            print(f"{row.name}, {tool}: {seen[row.name][tool]}", flush=True)

    if "hangs" in options.tables:
        ask_all(chosen(options.rows), TOOLS, lambda row, tool: ask(row, tool, options, build))
    if "numbers" in options.tables:
        ask_all(comparison_watched.chosen(options.rows), comparison_watched.TOOLS,
                lambda row, tool: comparison_watched.ask(row, tool, options, table.PROGRAMS, seen))
    torch = subprocess.run([options.python, "-c", "import torch; print(torch.__version__.split('+')[0])"], check=True,
                           capture_output=True, text=True).stdout.strip()
    before = options.output.read_text() if options.output.exists() else ""
    options.output.write_text(document(seen, options.tables, torch, before))


if __name__ == "__main__":
    main()
