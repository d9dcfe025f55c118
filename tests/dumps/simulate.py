"""Made-up jobs, and the Flight Recorder dumps they leave. It knows how devices and hosts behave and what recorders write
down, and nothing of how lockstep judges that.

Each rank has a program (calls in an order), a host that issues them, some ahead of its device, and a device that runs
them: those of one group in order, each when all members have come to it with the same call. A fault changes one
program, host or device. When nothing moves any more, or at a moment of a healthy job, all dumps are written."""
import json
import os
import pickle
import random

FAULTS = ["stuck host", "left early", "no dump of the stuck", "stuck device", "missing call", "extra call", "other size",
          "other operation", "other type", "swapped calls", "other order of groups", "cut network"]
SECOND = 1_000_000_000


class Op:
    __slots__ = ("group", "name", "size", "dtype", "peer", "ahead", "state", "at", "started", "ended", "seq", "p2p", "line")

    def __init__(self, group, name, size, line, peer=None, dtype="Float", ahead=False):
        self.group, self.name, self.size, self.dtype, self.peer, self.ahead = group, name, size, dtype, peer, ahead
        self.state, self.at, self.started, self.ended, self.line = "", 0, 0, 0, line
        self.seq = self.p2p = 0

    def meets(self, other):
        return (self.name, self.size, self.dtype) == (other.name, other.size, other.dtype)


class Groups:
    """8 groups for each rank of a job of tensor, pipeline and data parallelism."""

    def __init__(self, tensor, pipeline, data):
        self.tensor, self.pipeline, self.data = tensor, pipeline, data
        self.world = tensor * pipeline * data
        place = {r: (r % tensor, r // tensor % pipeline, r // tensor // pipeline) for r in range(self.world)}
        kinds = [("default_pg", lambda t, p, d: 0), ("tensor", lambda t, p, d: (p, d)), ("pipeline", lambda t, p, d: (t, d)),
                 ("data", lambda t, p, d: (t, p)), ("model", lambda t, p, d: d), ("stage", lambda t, p, d: p),
                 ("column", lambda t, p, d: t), ("norm", lambda t, p, d: 0)]
        self.ranks, self.of, self.kind = {}, {r: {} for r in range(self.world)}, {}
        for kind, key in kinds:
            found = {}
            for rank in range(self.world):
                found.setdefault(key(*place[rank]), []).append(rank)
            for members in found.values():
                name = str(len(self.ranks))
                self.ranks[name], self.kind[name] = members, kind
                for rank in members:
                    self.of[rank][kind] = name


def program(groups, rank, steps, overlap):
    mine, ops = groups.of[rank], []
    pipe = groups.ranks[mine["pipeline"]]
    stage = pipe.index(rank)
    for step in range(steps):
        for micro in range(2):
            if stage > 0:
                ops.append(Op(mine["pipeline"], "recv", 512, 20, stage - 1))
            for layer in range(2):
                ops.append(Op(mine["tensor"], "all_reduce", 1024 + 64 * layer, 30 + layer))
                ops.append(Op(mine["tensor"], "_all_gather_base", 256, 34))
            if stage + 1 < len(pipe):
                ops.append(Op(mine["pipeline"], "send", 512, 22, stage + 1))
        if stage + 1 < len(pipe):
            ops.append(Op(mine["pipeline"], "recv", 256, 24, stage + 1))
        for bucket in range(3):
            ops.append(Op(mine["data"], "all_reduce", 4096 + 8 * bucket, 40, ahead=overlap))
            ops.append(Op(mine["tensor"], "_reduce_scatter_base", 640 + bucket, 42))
        if stage > 0:
            ops.append(Op(mine["pipeline"], "send", 256, 26, stage - 1))
        ops.append(Op(mine["model"], "all_reduce", 1, 50))
        ops.append(Op(mine["stage"], "broadcast", 16, 52))
        ops.append(Op(mine["column"], "all_reduce", 2, 54))
        ops.append(Op(mine["norm"], "all_reduce", 3, 56))
        if step % 2:
            ops.append(Op("0", "all_reduce", 1, 60))
    return ops


class Job:
    def __init__(self, seed, shape=(4, 4, 4), healthy=False, fault=None, dumps_missing=True):
        self.random = random.Random(seed)
        draw = self.random
        self.healthy = healthy
        self.groups = Groups(*shape)
        self.world = self.groups.world
        self.ahead = draw.choice([1, 1, 3, 8, 30])
        self.flavour = draw.choice(["nccl", "nccl", "nccl2"])
        self.ring = max(draw.choice([30, 60, 120, 2000]), 2 * self.ahead)  # More than is ever in flight.
        steps = draw.randint(3, 6)
        overlap = draw.random() < 0.5
        self.programs = [program(self.groups, r, steps, overlap) for r in range(self.world)]
        self.host, self.device = [0] * self.world, [[] for _ in range(self.world)]  # Next to issue; issued and not done.
        self.issued = [[] for _ in range(self.world)]
        self.counts = [{} for _ in range(self.world)]
        self.now = 1_790_000_000 * SECOND
        self.offset = [draw.randint(-3 * SECOND, 3 * SECOND) if draw.random() < 0.3 else 0 for _ in range(self.world)]
        self.fault = None if healthy else (fault or draw.choice(FAULTS))
        self.culprit = self.stop_host = self.stop_device = self.cut = None
        if not healthy:
            self.break_it(draw)
        self.missing = set()
        if dumps_missing and draw.random() < 0.3:
            self.missing = set(draw.sample(range(self.world), draw.randint(1, max(1, self.world // 16)))) - {self.culprit}
        if self.fault == "no dump of the stuck":
            self.missing.add(self.culprit)

    # What goes wrong.
    def break_it(self, draw):
        self.culprit = draw.randrange(self.world)
        ops = self.programs[self.culprit]
        where = draw.randrange(len(ops) // 3, len(ops) - 4)
        in_a_group = [i for i in range(len(ops) // 3, len(ops) - 4)
                      if ops[i].peer is None and self.groups.kind[ops[i].group] in ("tensor", "data", "model", "stage")]
        call = draw.choice(in_a_group)
        if self.fault in ("stuck host", "no dump of the stuck"):
            self.stop_host = where
        elif self.fault == "left early":
            del ops[where:]
        elif self.fault == "stuck device":
            self.stop_device = ops[call]
        elif self.fault == "missing call":
            del ops[call]
        elif self.fault == "extra call":
            ops.insert(call, Op(ops[call].group, "all_reduce", 7, 70))
        elif self.fault == "other size":
            ops[call].size += 1
        elif self.fault == "other operation":
            ops[call].name = "reduce" if ops[call].name != "reduce" else "broadcast"
        elif self.fault == "other type":
            ops[call].dtype = "BFloat16"
        elif self.fault == "swapped calls":
            pairs = [(i, j) for i in in_a_group for j in in_a_group
                     if i < j <= i + 3 and ops[i].group == ops[j].group and not ops[i].meets(ops[j])]
            i, j = draw.choice(pairs)
            ops[i], ops[j] = ops[j], ops[i]
        elif self.fault == "other order of groups":
            for op in ops:
                op.ahead = False
            pairs = [i for i in in_a_group if i + 1 in in_a_group and ops[i].group != ops[i + 1].group]
            i = draw.choice(pairs)
            ops[i], ops[i + 1] = ops[i + 1], ops[i]
        else:
            self.cut, self.culprit = ops[call].group, None
            self.cut_at = draw.randint(2, 5)

    # How hosts and devices go on.
    def issue(self, rank):
        ops, at = self.programs[rank], self.host[rank]
        if at >= len(ops) or len(self.device[rank]) >= self.ahead or \
                (rank == self.culprit and self.stop_host == at):
            return False
        op = ops[at]
        counts = self.counts[rank].setdefault(op.group, [0, 0])
        counts[0 if op.peer is None else 1] += 1
        op.seq, op.p2p = counts
        op.state, op.at = "scheduled", self.now
        self.host[rank] += 1
        self.device[rank].append(op)
        self.issued[rank].append(op)
        return True

    def start(self, rank):
        """What the device may begin: in order, unless a call was issued to run beside the rest."""
        moved, groups = False, set()
        for op in self.device[rank]:
            stream = (op.group, op.peer, op.name) if op.peer is not None else op.group
            if op is self.stop_device:
                break
            if op.state == "scheduled" and stream not in groups:
                op.state, op.started, moved = "started", self.now, True
            groups.add(stream)
            if not op.ahead:
                break
        return moved

    def finish(self):
        moved = False
        heads = {}
        for rank in range(self.world):
            for op in self.device[rank]:
                if op.state == "started":
                    heads.setdefault((op.group, op.seq) if op.peer is None else (op.group, "p2p"), []).append((rank, op))
        for key, there in heads.items():
            members = self.groups.ranks[key[0]]
            if key[1] == "p2p":
                moved |= self.finish_messages(members, there)
            elif len(there) == len(members) and all(op.meets(there[0][1]) for _, op in there):
                if key[0] == self.cut and key[1] >= self.cut_at:
                    continue
                moved |= self.done(there)
        return moved

    def finish_messages(self, members, there):
        moved = False
        for rank, op in there:
            if op.name != "send" or op.state != "started":
                continue
            for other, receive in there:
                if receive.name == "recv" and receive.state == "started" and members[op.peer] == other and \
                        members[receive.peer] == rank:
                    moved |= self.done([(rank, op), (other, receive)])
                    break
        return moved

    def done(self, there):
        for rank, op in there:
            op.state, op.ended = "completed", self.now
            self.device[rank].remove(op)
        return True

    def run(self):
        draw, still = self.random, 0
        last = draw.randint(30, 200) if self.healthy and draw.random() < 0.5 else 10_000_000
        self.in_flight = last < 10_000_000
        rounds = 0
        while still < 3 and rounds < last:
            rounds += 1
            self.now += draw.randint(200_000, 3_000_000)
            order = list(range(self.world))
            draw.shuffle(order)
            moved = False
            for rank in order:
                if still == 0 and draw.random() < 0.2:  # Some are slower now and then.
                    continue
                moved |= self.issue(rank)
                moved |= self.start(rank)
            moved |= self.finish()
            still = 0 if moved else still + 1
        if not any(self.device):
            self.fault, self.healthy = None, True  # It did no harm.
        self.written = self.now + (50_000_000 if self.healthy else 600 * SECOND)

    # What the recorders write.
    def entry(self, rank, number, op, as_json):
        at = self.offset[rank]
        tells_starts = self.flavour == "nccl"
        state = op.state if tells_starts or op.state != "started" else "scheduled"
        name = op.name
        if op.peer is not None:
            me = self.groups.ranks[op.group].index(rank)
            name = f"send {me}->{op.peer}" if op.name == "send" else f"recv {me}<-{op.peer}"
        members = len(self.groups.ranks[op.group])
        grows, shrinks = op.name == "_all_gather_base", op.name == "_reduce_scatter_base"
        none = 0 if as_json else None
        entry = {
            "frames": [{"name": "all_reduce", "filename": "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py",
                        "line": 3000}, {"name": "step", "filename": "train.py", "line": op.line}],
            "record_id": number, "pg_id": int(op.group), "process_group": (op.group, self.groups.kind[op.group]),
            "thread_name": "python", "thread_id": "140022001425280", "collective_seq_id": op.seq, "p2p_seq_id": op.p2p,
            "op_id": number, "profiling_name": f"{self.flavour}:{name}", "time_created_ns": op.at + at,
            "input_sizes": [[op.size * (members if shrinks else 1)]], "input_dtypes": [op.dtype],
            "output_sizes": [[op.size * (members if grows else 1)]], "output_dtypes": [op.dtype], "state": state,
            "time_discovered_started_ns": op.started + at if tells_starts and op.started else none,
            "time_discovered_completed_ns": op.ended + at if op.ended else none,
            "retired": op.state == "completed", "timeout_ms": 600_000, "is_p2p": op.peer is not None}
        if as_json:
            del entry["frames"]
        return entry

    def dump(self, rank, as_json):
        entries = [self.entry(rank, i, op, as_json) for i, op in enumerate(self.issued[rank])][-self.ring:]
        config = {g: {"name": g, "desc": self.groups.kind[g], "ranks": str(self.groups.ranks[g])}
                  for g in self.groups.of[rank].values()}
        return {"version": "2.10", "pg_config": config, "comm_lib_version": "2.30.7", "pg_status": {}, "entries": entries}

    def write(self, folder, as_json=False):
        os.makedirs(folder, exist_ok=True)
        for rank in set(range(self.world)) - self.missing:
            dump = self.dump(rank, as_json)
            path = os.path.join(folder, f"nccl_trace_rank_{rank}" + (".json" if as_json else ""))
            with open(path, "wb") as file:
                file.write(json.dumps(dump, sort_keys=True).encode() if as_json else pickle.dumps(dump, protocol=2))
            at = self.written + self.offset[rank]
            os.utime(path, ns=(at, at))

    def label(self):
        return {"fault": self.fault, "rank": self.culprit, "without_dump": sorted(self.missing)}
