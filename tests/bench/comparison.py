#!/usr/bin/env python3
"""What PyTorch's own tools and lockstep say of the same programs, as a table: docs/comparison.md.

    comparison.py LOCKSTEP [--python PYTHON] [--rows PART ...] [--output FILE] [--state FILE]

Of each code a bad program of fixtures/programs that has it, on two ranks over Gloo:
 - with TORCH_DISTRIBUTED_DEBUG=DETAIL: the last exception of each rank, or how it ended;
 - with the Flight Recorder on: every rank writes its record every two seconds and when it ends, and the analyzer
   of that torch reads the last ones. Where it raises, it is asked again with the groups written into the records by hand;
 - under lockstep: code, culprits and headline of the finding.
Each run is ended after --limit seconds. Resumable: what was seen is kept in --state.
"""

import argparse
import contextlib
import json
import os
import pathlib
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "fixtures" / "programs"), str(ROOT / "tests" / "programs")]

import judged  # noqa: E402
import table  # noqa: E402

WORLD, WIDTH = 2, 240

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


def run_ranks(command: list, limit: float, environment: dict) -> list:
    """By hand: (exit status or None where it had to be ended, stderr) of each rank."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = str(listening.getsockname()[1])
    with contextlib.ExitStack() as stack:
        ranks = []
        for rank in range(WORLD):
            variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1",
                         "MASTER_PORT": port}
            log = stack.enter_context(tempfile.TemporaryFile())
            process = subprocess.Popen(command, env={**os.environ, **environment, **variables}, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
            stack.callback(end_session, process)
            ranks.append((process, log))
        ends = ends_of([process for process, _ in ranks], limit)
        for _, log in ranks:
            log.seek(0)
        return [(end, log.read().decode(errors="replace")) for end, (_, log) in zip(ends, ranks, strict=True)]


def ends_of(ranks: list, limit: float) -> list:
    """Of each its exit status, None where it had to be ended after `limit` s; nothing of them is left, shared memory neither."""
    late, blocks = set(), set()
    for process in ranks:
        until = time.monotonic() + limit
        while not has_ended(process) and time.monotonic() < until:
            for rank in ranks:
                with contextlib.suppress(OSError):
                    blocks.update(judged.shared_memory_in(pathlib.Path(f"/proc/{rank.pid}/maps").read_text()))
            time.sleep(0.1)
        if has_ended(process):
            limit = max(limit / 4, 5)  # The others learn of it at once, or not at all.
        else:
            late.add(process)
    for process in ranks:
        end_session(process)
    for block in blocks:
        pathlib.Path(block).unlink(missing_ok=True)
    return [None if process in late else process.returncode for process in ranks]


def has_ended(process: subprocess.Popen) -> bool:
    """Without waiting for it: its number, its session's too, stays its own until then."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_session(process: subprocess.Popen) -> None:
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def short(text: str) -> str:
    text = re.sub(r"\S*/(?=[\w.-]+\.(py|cc|cpp|h|hpp)\b)", "", re.sub(r"\s+", " ", text)).strip()
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def last_exception(text: str) -> str:
    lines = [re.sub(r"^\[rank\d+\]: ?", "", line) for line in text.splitlines()]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|NotMet)\b", line) or line.startswith("  what():")]
    return short(raised[-1].removeprefix("  what():")) if raised else ""


def how_it_ended(rank: int, end: int | None, text: str) -> str:
    if end == 0:
        return f"rank {rank}: exit status 0"
    if end is None:
        return f"rank {rank}: still waiting"
    ended = f"killed by {signal.Signals(-end).name}" if end < 0 else f"exit status {end}"
    said = last_exception(text)
    return f"rank {rank}: {ended}{': ' + said if said else ''}"


def seen_by_detail(command: list, limit: float) -> str:
    ends = run_ranks(command, limit, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    return "; ".join(how_it_ended(rank, end, text) for rank, (end, text) in enumerate(ends))


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
            record["pg_config"] = {name: {"name": name, "desc": desc, "ranks": str(list(range(WORLD)))} for name, desc in groups}
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


def seen_by_lockstep(lockstep: str, options: tuple, command: list) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        run = pathlib.Path(scratch) / "run"
        done = subprocess.run([lockstep, "run", *options, "-n", str(WORLD), "--run-dir", str(run), "--", *command],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=180)
        report = json.loads((run / "report.json").read_text())
    judged.remove_what_is_left(report)
    if not report["findings"]:
        return f"nothing, exit status {done.returncode}"
    finding = report["findings"][0]
    lines = sorted({f"{pathlib.Path(s['file']).name}:{s['line']}" for s in finding["sites"]})
    blamed = f"culprit rank {', '.join(map(str, finding['culprits']))}" if finding["culprits"] else "no rank is blamed"
    return short(f"{finding['code']}, {blamed}: {finding['headline']}") + f" ({', '.join(lines) or 'no line'})"


def document(seen: dict, rows: list, torch: str) -> str:
    lines = [
        "# What other tools say of the same programs",
        "",
        f"Programs of `fixtures/programs`, two ranks over Gloo, torch {torch}; a program of each code. Written by",
        "`tests/bench/comparison.py`, which says how each tool was asked. Expected is what the table of the programs holds:",
        "code and culprits, none where two ranks leave it open which of them is wrong.",
        "",
        "| program | expected | `TORCH_DISTRIBUTED_DEBUG=DETAIL` | Flight Recorder and its analyzer | lockstep |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        if row.name in seen:
            code, culprits = row.expected(WORLD)
            expected = f"{code}, {'rank ' + ', '.join(map(str, sorted(culprits))) if culprits else 'nobody'}"
            cells = (f"`{row.name}`", expected, *(seen[row.name][tool] for tool in ("detail", "recorder", "lockstep")))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rows", nargs="*", default=[], help="only programs whose name has this part")
    parser.add_argument("--limit", type=float, default=25, help="seconds for each run")
    parser.add_argument("--state", type=pathlib.Path, default=ROOT / "build" / "comparison.json")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "comparison.md")
    options = parser.parse_args()
    seen = json.loads(options.state.read_text()) if options.state.exists() else {}
    rows = chosen(options.rows)
    for row in rows:
        arguments = row.arguments.format(build=pathlib.Path(options.lockstep).resolve().parents[1]).split()
        command = [options.python, "-B", str(table.PROGRAMS / row.program), *arguments]
        if row.name not in seen:
            seen[row.name] = {
                "detail": seen_by_detail(command, options.limit),
                "recorder": seen_by_recorder(command, options.limit, options.python),
                "lockstep": seen_by_lockstep(options.lockstep, row.options, command),
            }
            options.state.write_text(json.dumps(seen, indent=1))
        print(f"{sum(r.name in seen for r in rows)} of {len(rows)} done  {row.name}: {seen[row.name]}", flush=True)
    torch = subprocess.run([options.python, "-c", "import torch; print(torch.__version__.split('+')[0])"], check=True,
                           capture_output=True, text=True).stdout.strip()
    options.output.write_text(document(seen, rows, torch))
    print(options.output.read_text(), end="")


if __name__ == "__main__":
    main()
