"""Judging dumps beside PyTorch's own analyser, on the same files: time and memory of each, and the curve over ranks.

usage: dumps.py LOCKSTEP [--python PYTHON] [--ranks N] [--entries N] [--curve N,N,...] [--only lockstep]

Jobs in closed form: groups of eight beside the world, all calls alike, the last call missing on one rank. Pickles as
PyTorch's recorder writes them: texts and frames once, and after that by their number."""
import argparse
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import time

START = 1_790_000_000_000_000_000
FRAMES = [{"name": f"f{i}", "filename": f"train_{i}.py", "line": 10 + i} for i in range(8)]
FLOAT, NCCL = "Float", "nccl:all_reduce"


class Pickler:
    """PyTorch's: what is a dict of frames or a text gets a number; integers are as wide as asked for."""

    def __init__(self):
        self.memo, self.out = {}, bytearray(b"\x80\x02")

    def remembered(self, key):
        number = self.memo.get(key)
        if number is None:
            number = self.memo[key] = len(self.memo)
            return False, struct.pack("<cI", b"r", number) if number > 255 else bytes((ord("q"), number))
        return True, struct.pack("<cI", b"j", number) if number > 255 else bytes((ord("h"), number))

    def put(self, value):
        if value is None or value is True or value is False:
            self.out += {None: b"N", True: b"\x88", False: b"\x89"}[value]
        elif isinstance(value, int):
            wide = not -2**31 <= value < 2**31
            self.out += b"\x8a\x08" + struct.pack("<q", value) if wide else struct.pack("<ci", b"J", value)
        elif isinstance(value, str):
            known, code = self.remembered(value)
            text = value.encode()
            self.out += code if known else struct.pack("<cI", b"X", len(text)) + text + code
        elif isinstance(value, tuple):
            for item in value:
                self.put(item)
            self.out += b"\x86"
        elif isinstance(value, list):
            self.out += b"]("
            for item in value:
                self.put(item)
            self.out += b"e"
        else:
            shared = "filename" in value
            known, code = self.remembered(id(value)) if shared else (False, b"")
            if not known:
                self.out += b"}" + code + b"("
                for key, item in value.items():
                    self.put(key)
                    self.put(item)
                self.out += b"u"
            else:
                self.out += code


def entry(i, group, description, seq, done):
    at = START + i * 1_000_000
    return {"frames": FRAMES, "record_id": i, "pg_id": int(group), "process_group": (group, description),
            "thread_name": "python", "thread_id": "140022001425280", "collective_seq_id": seq, "p2p_seq_id": 0,
            "op_id": seq, "profiling_name": NCCL, "time_created_ns": at, "input_sizes": [[1024 + seq % 7]],
            "input_dtypes": [FLOAT], "output_sizes": [[1024 + seq % 7]], "output_dtypes": [FLOAT],
            "state": "completed" if done else "started", "time_discovered_started_ns": at + 1000,
            "time_discovered_completed_ns": at + 2000 if done else None, "retired": done, "timeout_ms": 600_000,
            "is_p2p": False}


class Template:
    """The bytes of an entry whose numbers change."""

    def __init__(self, pickler, group, description):
        first = len(pickler.out)
        marks = [1_000_000_007 + k for k in range(3)]  # record_id, seq (also op_id), size.
        times = [START - 2 + k for k in range(3)]
        call = entry(0, group, description, 0, True)
        call.update(record_id=marks[0], collective_seq_id=marks[1], op_id=marks[1], input_sizes=[[marks[2]]],
                    output_sizes=[[marks[2]]], time_created_ns=times[0], time_discovered_started_ns=times[1],
                    time_discovered_completed_ns=times[2])
        for _ in range(2):  # The second has nothing new.
            del pickler.out[first:]
            pickler.put(call)
        self.bytes = bytes(pickler.out[first:])
        del pickler.out[first:]
        self.places = [(code, k, at) for code, all_of in (("<i", marks), ("<q", times)) for k, mark in enumerate(all_of)
                       for at in self.find(struct.pack(code, mark))]

    def find(self, pattern):
        at = self.bytes.find(pattern)
        while at >= 0:
            yield at
            at = self.bytes.find(pattern, at + 1)

    def fill(self, i, seq):
        call, at = bytearray(self.bytes), START + i * 1_000_000
        values = {"<i": (i, seq, 1024 + seq % 7), "<q": (at, at + 1000, at + 2000)}
        for code, k, place in self.places:
            struct.pack_into(code, call, place, values[code][k])
        return call


def pickled(config, calls):
    """`calls`: i, group, description, seq, done."""
    pickler = Pickler()
    pickler.out += b"}("
    for key, value in (("version", "2.10"), ("pg_config", config), ("comm_lib_version", "2.30.7"), ("pg_status", {})):
        pickler.put(key)
        pickler.put(value)
    pickler.put("entries")
    pickler.out += b"](" if calls else b"]"
    templates = {}
    for i, group, description, seq, done in calls:
        if done and group in templates:
            pickler.out += templates[group].fill(i, seq)
            continue
        pickler.put(entry(i, group, description, seq, done))  # It tells the texts; the next one has their numbers.
        templates[group] = Template(pickler, group, description)
    pickler.out += (b"e" if calls else b"") + b"u."
    return bytes(pickler.out)


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
            calls.append((i, mine if small else "0", "tensor" if small else "default_pg", counts[small], not waits))
        data = pickled(config, calls)
        if rank == 0:
            assert pickle.loads(data) == {"version": "2.10", "pg_config": config, "comm_lib_version": "2.30.7",
                                          "pg_status": {}, "entries": [entry(*call) for call in calls]}
        path = os.path.join(folder, f"trace_{rank}")
        with open(path, "wb") as file:
            file.write(data)
        at = START + entries * 1_000_000 + 600_000_000_000
        os.utime(path, ns=(at, at))


def measured(command):
    """Seconds, those on a core, MiB at the peak, status, what it said."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    return (time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024,
            os.waitstatus_to_exitcode(status), out.decode(errors="replace"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--curve", default="256,512", help="more numbers of ranks, for lockstep alone")
    parser.add_argument("--only", choices=["both", "lockstep"], default="both")
    options = parser.parse_args()
    late = 0
    for ranks in sorted({int(n) for n in options.curve.split(",") if n} | {options.ranks}):
        folder = tempfile.mkdtemp(prefix="lockstep-bench-dumps-")
        write(folder, ranks, options.entries)
        size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)) / 2**20
        ours = measured([options.lockstep, "check", folder, "--format", "json"])
        named = '"culprits": [' in ours[4] and "rank 3 has not entered" in ours[4]
        print(f"{ranks:6} ranks x {options.entries} entries, {size:6.0f} MiB: lockstep {ours[0]:7.2f} s ({ours[1]:.2f} s on "
              f"a core) {ours[2]:7.0f} MiB, status {ours[3]}, rank 3 named: {named}", flush=True)
        late |= not named
        if ranks == options.ranks and options.only == "both":
            theirs = measured([options.python, "-m", "torch.distributed.flight_recorder.fr_trace", folder, "-p", "trace_"])
            print(f"{'':6} torchfrtrace {theirs[0]:7.2f} s ({theirs[1]:.2f} s on a core) {theirs[2]:7.0f} MiB, status "
                  f"{theirs[3]}: x {theirs[0] / ours[0]:.1f} the time, x {theirs[1] / ours[1]:.1f} on a core, "
                  f"x {theirs[2] / ours[2]:.1f} the memory")
            late |= theirs[0] < 40 * ours[0] or theirs[2] < 8 * ours[2]
        shutil.rmtree(folder)
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
