"""Judging dumps beside PyTorch's own analyser, on the same files: time and memory of each, and the curve over ranks.

usage: dumps.py LOCKSTEP [--python PYTHON] [--ranks N] [--entries N] [--curve N,N,...]

Jobs in closed form: groups of eight beside the world, all calls alike, the last call missing on one rank. Pickles as
PyTorch's recorder writes them, its shared values included."""
import argparse
import os
import pickle
import resource
import shutil
import subprocess
import sys
import tempfile
import time

START = 1_790_000_000_000_000_000
FRAMES = [{"name": f"f{i}", "filename": f"train_{i}.py", "line": 10 + i} for i in range(8)]
FLOAT, NCCL = "Float", "nccl:all_reduce"


def entry(i, group, description, seq, done):
    at = START + i * 1_000_000
    return {"frames": FRAMES, "record_id": i, "pg_id": int(group), "process_group": (group, description),
            "thread_name": "python", "thread_id": "140022001425280", "collective_seq_id": seq, "p2p_seq_id": 0,
            "op_id": seq, "profiling_name": NCCL, "time_created_ns": at, "input_sizes": [[1024 + seq % 7]],
            "input_dtypes": [FLOAT], "output_sizes": [[1024 + seq % 7]], "output_dtypes": [FLOAT],
            "state": "completed" if done else "started", "time_discovered_started_ns": at + 1000,
            "time_discovered_completed_ns": at + 2000 if done else None, "retired": done, "timeout_ms": 600_000,
            "is_p2p": False}


def write(folder, ranks, entries):
    """Three of four calls are of a group of eight. The last is one of them, and rank 3 has not issued it."""
    every = str(list(range(ranks)))
    for rank in range(ranks):
        first = rank // 8 * 8
        mine = str(1 + rank // 8)
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": every},
                  mine: {"name": mine, "desc": "tensor", "ranks": str(list(range(first, first + 8)))}}
        last = entries - (1 if rank == 3 else 0)
        calls, counts = [], [0, 0]
        for i in range(last):
            small = i % 4 != 0
            counts[small] += 1
            waits = rank < 8 and i == entries - 1
            calls.append(entry(i, mine if small else "0", "tensor" if small else "default_pg", counts[small], not waits))
        dump = {"version": "2.10", "pg_config": config, "comm_lib_version": "2.30.7", "pg_status": {}, "entries": calls}
        path = os.path.join(folder, f"trace_{rank}")
        with open(path, "wb") as file:
            pickle.dump(dump, file, protocol=2)
        at = START + entries * 1_000_000 + 600_000_000_000
        os.utime(path, ns=(at, at))


def measured(command):
    """Seconds, MiB at the peak, what it said."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    return time.monotonic() - started, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status), out.decode(errors="replace")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--curve", default="64,128,256,512,1024")
    parser.add_argument("--only", choices=["both", "lockstep"], default="both")
    options = parser.parse_args()
    late = 0
    for ranks in sorted({int(n) for n in options.curve.split(",") if n} | {options.ranks}):
        folder = tempfile.mkdtemp(prefix="lockstep-bench-dumps-")
        write(folder, ranks, options.entries)
        size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)) / 2**20
        ours = measured([options.lockstep, "check", folder, "--format", "json"])
        named = '"culprits": [' in ours[3] and "rank 3 has not entered" in ours[3]
        print(f"{ranks:6} ranks x {options.entries} entries, {size:6.0f} MiB: lockstep {ours[0]:7.2f} s {ours[1]:7.0f} MiB, "
              f"status {ours[2]}, rank 3 named: {named}", flush=True)
        late |= not named
        if ranks == options.ranks and options.only == "both":
            theirs = measured([options.python, "-m", "torch.distributed.flight_recorder.fr_trace", folder, "-p", "trace_"])
            print(f"{'':6} torchfrtrace {theirs[0]:7.2f} s {theirs[1]:7.0f} MiB, status {theirs[2]}: "
                  f"x {theirs[0] / ours[0]:.1f} the time, x {theirs[1] / ours[1]:.1f} the memory")
            late |= theirs[0] < 40 * ours[0] or theirs[1] < 8 * ours[1]
        shutil.rmtree(folder)
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
