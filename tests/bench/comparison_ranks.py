"""Programs on two ranks, by hand and under lockstep, and in words how they ended: what both tables of comparison.py need."""

import contextlib
import json
import os
import pathlib
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

WORLD, WIDTH = 2, 240


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
    """Of each its exit status, None where it had to be ended after `limit` s; nothing is left, shared memory neither."""
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


def seen_with(variables: dict, command: list, limit: float) -> str:
    """By PyTorch, with these variables in the environment."""
    ends = run_ranks(command, limit, variables)
    return "; ".join(how_it_ended(rank, end, text) for rank, (end, text) in enumerate(ends))


def seen_by_lockstep(lockstep: str, options: tuple, command: list, tells_severity: bool = False) -> str:
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
    severity = f" (a {finding['severity']})" if tells_severity and finding["severity"] != "error" else ""
    return short(f"{finding['code']}{severity}, {blamed}: {finding['headline']}") + f" ({', '.join(lines) or 'no line'})"
