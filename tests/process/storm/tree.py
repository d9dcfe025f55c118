"""A program without torch whose processes do everything to get away: what storm.py runs under lockstep, and beside it.

  tree.py rank PLAN        starts the children of its rank, lives as long as the plan says, and ends
  tree.py launcher PLAN    starts the ranks itself and waits for them
  tree.py bystander        the same programs and names, in no job: counts the signals that reach it until stdin ends

PLAN is JSON: {"ranks": [NODE, ...]}, and NODE {"life": seconds, "flags": [...], "become": "", "children": [NODE, ...]}.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time

COUNTED = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}


def rename(name: str) -> None:
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME


def sleep_until(deadline: float) -> None:
    while time.monotonic() < deadline:
        time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))


def start(node: dict) -> None:
    """Forks a child that does what its node says; one that forks twice is nobody's when this returns."""
    flags, pid = node["flags"], os.fork()
    if pid != 0:
        if "double" in flags:
            os.waitpid(pid, 0)
        return
    if "setsid" in flags:
        os.setsid()
    if "double" in flags and os.fork() != 0:
        os._exit(0)
    if "ignore_term" in flags:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    if "renamed" in flags:
        rename("kworker/0:1")
    if "zombie" in flags and os.fork() == 0:
        os._exit(0)
    live(node)
    os._exit(0)


def live(node: dict) -> None:
    deadline = time.monotonic() + node["life"]
    for child in node["children"]:
        start(child)
    listening = socket.create_server(("127.0.0.1", 0)) if "port" in node["flags"] else None
    seconds = str(node["life"])
    if node["become"] == "sleep":
        os.execvp("sleep", ["sleep", seconds])
    if node["become"] == "sh":
        os.execvp("sh", ["sh", "-c", f"sleep {seconds} & sleep {seconds}; wait"])
    if node["become"] == "no_environment":
        os.execve("/bin/sleep", ["sleep", seconds], {})
    if node["become"] == "relay":  # Each generation lives for a moment.
        while time.monotonic() < deadline:
            time.sleep(0.03)
            if os.fork() != 0:
                os._exit(0)
    sleep_until(deadline)
    if listening:
        listening.close()


def launch(plan: dict) -> int:
    ranks = []
    for rank in range(len(plan["ranks"])):
        told = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(plan["ranks"]))}
        ranks.append(subprocess.Popen([sys.executable, __file__, "rank", sys.argv[2]], env=told))
    return max(abs(rank.wait()) for rank in ranks)


def stand_by() -> None:
    """One of each kind; those in Python count every signal that can be counted, and say so when stdin ends."""
    counts = {}
    for command in (["sleep", "1000"], ["sh", "-c", "sleep 1000; :"]):
        subprocess.Popen(command)
    told, telling = os.pipe()
    asked, asking = os.pipe()
    names = ["python", "lockstep", "kworker/0:1"]
    for name in names:
        if os.fork() == 0:
            os.close(asking)
            count_signals(counts)
            rename(name)
            os.write(telling, b".")
            while os.read(asked, 1):
                pass
            os.write(telling, json.dumps(counts).encode() + b"\n")
            os._exit(0)
    count_signals(counts)
    ready = b""
    while len(ready) < len(names):
        ready += os.read(told, 16)
    print("ready", flush=True)
    sys.stdin.read()
    os.close(asking)
    os.close(telling)
    said = b""
    while part := os.read(told, 4096):
        said += part
    print(json.dumps([counts, *map(json.loads, said.split())]), flush=True)
    time.sleep(1000)  # Until it is ended by whoever asked.


def count_signals(counts: dict) -> None:
    for number in COUNTED:
        signal.signal(number, lambda got, _: counts.__setitem__(got, counts.get(got, 0) + 1))


def main() -> int:
    if sys.argv[1] == "bystander":
        stand_by()
        return 0
    plan = json.loads(sys.argv[2])
    if sys.argv[1] == "launcher":
        return launch(plan)
    live(plan["ranks"][int(os.environ["RANK"])])
    return 0


if __name__ == "__main__":
    sys.exit(main())
