"""Programs that are run with and without lockstep to see that nothing differs: transparent.py NAME [ARGUMENT ...]

Each is a function below. What they print and write must be the same each time they run; they know their rank from the
environment, as under any launcher.
"""

import faulthandler
import fcntl
import glob
import hashlib
import locale
import os
import pathlib
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
import time

RANK = int(os.environ.get("RANK", "0"))

# What may differ, and why. Everything else that `surroundings` finds must be the same.
OF_LOCKSTEP = {
    "environment LD_PRELOAD": "the shim comes after what the user preloads; a test of its own looks at the order",
    "environment LOCKSTEP_TAPS": "where the shim finds the tap, which a launcher's children need too",
    "environment LOCKSTEP_READY_TAPS": "the same, where taps came with lockstep",
    "environment LOCKSTEP_HISTORY": "where the tap writes",
    "environment LOCKSTEP_SUPERVISOR": "who adopts orphans, for the shim to tell them what they would be told without it",
    "environment LOCKSTEP_LAST_WORDS": "that the stderr of the ranks is their launcher's, so that the shim keeps the end of it",
    "environment LOCKSTEP_JOB": "the mark by which leftovers of a job are known as its own",
    "environment LOCKSTEP_RUN": "where the run is, for `lockstep clean` to settle what a killed lockstep left",
    "environment MASTER_PORT": "another free port each time",
    "parent-death signal": "a rank that lockstep starts must not outlive it",
    "process group": "each rank leads its own under -n, so that it can be ended with what it starts",
}
STATUS = re.compile(r"(Sig[PBIC]\w+|Shd\w+|Cap\w+|NoNewPrivs|Seccomp\w*|Umask|Threads|TracerPid|Cpus_allowed|Uid|Gid|Groups)$")


def say(*words):
    """In one piece: children write to the same pipe."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def descriptors():
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
            mode = stat.S_IFMT(os.fstat(int(name)).st_mode)
            flags = fcntl.fcntl(int(name), fcntl.F_GETFL), fcntl.fcntl(int(name), fcntl.F_GETFD)
        except OSError:  # That of the listing itself.
            continue
        kind = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}.get(mode, re.sub(r"(/pts/|#)\d+", r"\1N", target))
        if kind == "socket":  # Which of a group's connections is first is a matter of time.
            yield f"descriptor {name}", kind
            continue
        yield f"descriptor {name}", (kind, oct(flags[0] & ~0o100000), flags[1], os.isatty(int(name)))


def of_process():
    import ctypes

    libc, asked = ctypes.CDLL(None), ctypes.c_int()
    libc.prctl(2, ctypes.byref(asked), 0, 0, 0)  # PR_GET_PDEATHSIG
    yield "parent-death signal", asked.value
    yield "dumpable, keeps capabilities, timer slack", [libc.prctl(what, 0, 0, 0, 0) for what in (3, 7, 30)]
    yield "process group", os.getpgrp() == os.getpid()
    yield "terminal", [os.isatty(fd) for fd in range(3) if os.path.exists(f"/proc/self/fd/{fd}")]
    yield "terminal size", [os.get_terminal_size(fd) for fd in range(3) if os.isatty(fd)]
    yield "priority", (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0)))
    yield "folder", os.getcwd()
    yield "personality", open("/proc/self/personality").read()
    yield "out of memory", open("/proc/self/oom_score_adj").read()
    yield "locale", (locale.setlocale(locale.LC_ALL, ""), sys.stdout.encoding, sys.stdout.line_buffering)
    yield "python", (sys.flags, sys.orig_argv, sys.path, sys.executable, sys.gettrace(), sys.getprofile())
    yield "handlers", [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())]
    yield "children", open(f"/proc/self/task/{os.getpid()}/children").read()
    yield "threads", sorted(open(path).read().strip() for path in glob.glob("/proc/self/task/*/comm"))


def all_surroundings():
    yield from ((f"environment {name}", os.environ[name]) for name in sorted(os.environ))
    yield from descriptors()
    for line in open("/proc/self/status"):
        name, value = line.split(":", 1)
        if STATUS.match(name):
            yield name, value.split()
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            yield name, resource.getrlimit(getattr(resource, name))
    yield from of_process()
    told = subprocess.run(["sh", "-c", "echo $0; ulimit -a; umask; trap"], capture_output=True, text=True)
    yield "a shell says", told


def surroundings(path="", numbered=True):
    """To a file where the output is a terminal that others write to.

    Not `numbered`: which descriptor has which number is a matter of time where threads open them.
    """
    lines = [f"{name}: {value}\n" for name, value in all_surroundings() if name not in OF_LOCKSTEP]
    text = "".join(lines if numbered else sorted(re.sub(r"^descriptor \d+", "descriptor", line) for line in lines))
    pathlib.Path(path).write_text(text) if path else print(text, end="")


def streams():
    """Everything that a stream can do: bytes that are no text, lines that do not end, much at once."""
    for i in range(200):
        os.write(1, f"line {i} of rank {RANK}\n".encode())
        os.write(2, b"\x1b[1mwarning\x1b[0m %d " % i)
    sys.stdout.buffer.write(bytes(range(256)) * 8192)
    sys.stderr.write("r\u00e9sum\u00e9 \u2713" if sys.stderr.encoding == "utf-8" else "resume")
    sys.stdout.flush()
    os.write(1, b"no newline at the end")


def standard_input():
    read = sys.stdin.buffer.read()
    say(len(read), hashlib.sha256(read).hexdigest())


def no_stream(fd, path):
    """What was open when we began: the next descriptor is the lowest that was not."""
    open_then = [n for n in range(20) if os.path.exists(f"/proc/self/fd/{n}")]
    pathlib.Path(path).write_text(f"{int(fd) in open_then} {open_then}")


def ends(how):
    print("buffered until the end")
    print("so is this", file=sys.stderr)
    if how == "raise":
        raise ValueError(f"rank {RANK} cannot go on")
    if how == "leave":
        os._exit(9)
    if how.isdigit():
        sys.exit(int(how))
    if how == "SIGSEGV":
        faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(60)


def files():
    os.umask(0o027)
    folder = pathlib.Path(f"out {RANK}")
    folder.mkdir()
    (folder / "weights").write_bytes(bytes(range(256)) * 1000)
    os.symlink("weights", folder / "latest")
    with open(folder / "sparse", "wb") as file:
        file.truncate(1 << 20)
    os.mkfifo(folder / "queue")


def children():
    """A fork, a shell with a pipe, a program without an environment, an exec; a signal from a child."""
    got = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: got.set())
    if os.fork() == 0:
        os.kill(os.getppid(), signal.SIGUSR1)
        os._exit(3)
    say("child", os.waitstatus_to_exitcode(os.wait()[1]), got.wait(10))
    say(subprocess.run("printf 'b\\na\\n' | sort; exit 4", shell=True, capture_output=True))
    say(subprocess.run([sys.executable, "-c", "import os; print(sorted(os.environ))"], env={"LC_ALL": "C"}, capture_output=True))
    say(subprocess.run(["true"]), subprocess.run(["sh", "-c", "kill -9 $$"]))
    daemon = subprocess.Popen(["sleep", "60"], start_new_session=True)
    daemon.terminate()
    say(daemon.wait())
    os.execv(sys.executable, [sys.executable, __file__, "after_exec"])


def after_exec():
    surroundings()


def timers():
    """Signals that a program uses itself, and calls that they interrupt."""
    beats, blocked = [], {signal.SIGUSR2}
    signal.signal(signal.SIGALRM, lambda *_: beats.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    begun = time.monotonic()
    while len(beats) < 20:
        signal.pause()
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.kill(os.getpid(), signal.SIGUSR2)
    say(time.monotonic() - begun < 30, signal.sigwait(blocked), signal.sigpending())
    for n in sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}):
        signal.signal(n, signal.SIG_IGN)
    say(open("/proc/self/status").read().split("SigIgn:")[1].split()[0])


# ------------------------------------------------------------------------------------ programs with torch


def joined(backend="gloo"):
    import torch
    import torch.distributed as dist
    import torch.distributed.nn  # Imported after, as by DDP, it keeps the group until Python has ended: a race of PyTorch.

    dist.init_process_group(backend)
    return torch, dist


def tensors_of(torch, *values):
    return torch.tensor([float(value) for value in values])


def training():
    """DDP with a BatchNorm: losses to the last bit, and a checkpoint."""
    torch, dist = joined()
    torch.manual_seed(RANK)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(5):
        loss = model(torch.randn(16, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(step, loss.item().hex(), torch.random.get_rng_state().sum().item())
    state = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    pathlib.Path(f"checkpoint-{RANK}").write_bytes(state)
    dist.destroy_process_group()


def operations():
    """Collectives in inference mode, asynchronous, of objects, functional, point to point, and refused ones."""
    torch, dist = joined()
    import torch.distributed._functional_collectives as functional

    with torch.inference_mode():
        t = tensors_of(torch, RANK, 2)
        dist.all_reduce(t, op=dist.ReduceOp.MAX)
        say(t.tolist())
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, {"rank": RANK, "text": "x" * RANK})
    shared = [{"from": RANK}]
    dist.broadcast_object_list(shared, src=1)
    say(objects, shared, functional.all_reduce(tensors_of(torch, RANK), "sum", dist.group.WORLD).tolist())
    work = dist.all_reduce(t.clone(), async_op=True)
    say(work.wait(), work.is_completed(), work.result()[0].tolist())
    if RANK == 0:
        dist.send(tensors_of(torch, 7), 1)
    elif RANK == 1:
        got = tensors_of(torch, 0)
        say(dist.recv(got), got.tolist())
    for wrong in (lambda: dist.broadcast(t, src=99), lambda: dist.all_reduce("no tensor")):
        try:
            wrong()
        except Exception as error:
            say(type(error).__name__, str(error).splitlines()[0])
    dist.barrier()
    dist.destroy_process_group()


def groups():
    """Made, used, destroyed and made again; one with a thread of its own."""
    torch, dist = joined()
    for generation in range(2):
        group = dist.new_group([0, 1])
        alone = dist.new_group([1])
        t = tensors_of(torch, RANK, generation)
        thread = threading.Thread(target=dist.all_reduce, args=(t,), kwargs={"group": group})
        thread.start()
        thread.join()
        if RANK == 1:
            dist.all_reduce(t, group=alone)
        say(t.tolist(), dist.get_world_size(group), dist.get_process_group_ranks(group))
        dist.destroy_process_group()
        if generation == 0:
            store = dist.FileStore("meet", 2)
            dist.init_process_group("gloo", store=store, rank=RANK, world_size=2)


class Numbers:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        pathlib.Path(f"item-{RANK}-{index}").write_text(str(sys.flags))
        return float(index)


def loader():
    torch, dist = joined()
    for context in ("fork", "spawn"):
        for batch in torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context=context):
            dist.all_reduce(batch)
            say(context, batch.tolist())
    dist.destroy_process_group()


def surroundings_of_rank():
    """After the tap came in and has worked."""
    torch, dist = joined()
    dist.all_reduce(torch.ones(2))
    surroundings(numbered=False)
    say(len(sys.modules), len(torch.ops.c10d.__dir__()))
    dist.destroy_process_group()


def fails_in_a_collective():
    torch, dist = joined()
    dist.all_reduce(tensors_of(torch, 1))
    dist.destroy_process_group()
    sys.stderr.flush()
    raise RuntimeError("both ranks say so")


def preloaded():
    """The user's own library is first, and what it interposes is in force with the tap in."""
    import ctypes

    torch, dist = joined()
    dist.all_reduce(torch.ones(2))
    say(os.environ["LD_PRELOAD"].split(":")[0], os.ctermid(), "sitecustomize" in sys.modules)
    dist.destroy_process_group()


def isolated():
    """python -S, -I, -E: without site, its packages are where the caller says."""
    sys.path.append(os.environ["PACKAGES"])
    torch, dist = joined()
    t = torch.ones(2)
    dist.all_reduce(t)
    say(t.tolist(), sys.flags, "site" in sys.modules)
    dist.destroy_process_group()


def again():
    """A rank that starts itself anew after its group was used."""
    torch, dist = joined()
    t = tensors_of(torch, RANK)
    dist.all_reduce(t)
    say(t.tolist())
    dist.destroy_process_group()
    if "FILE" not in os.environ:
        environment = {**os.environ, "FILE": "again"}
        os.execve(sys.executable, [sys.executable, __file__, "again_by_file"], environment)


def again_by_file():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.FileStore("again", 2), rank=RANK, world_size=2)
    t = tensors_of(torch, RANK + 1)
    dist.all_reduce(t)
    say(t.tolist())
    # Of two stores that end at once none may remove the file (PyTorch's own race): one after the other, until the exit.
    global in_turn
    in_turn = open(__file__)
    fcntl.flock(in_turn, fcntl.LOCK_EX)
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
