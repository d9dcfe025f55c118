"""What this Python's torch is, and whether two ranks meet over each interface. One line of JSON for each answer.

argv: seconds for each interface, seconds in all, then interfaces.
"""

import sys

if sys.path[:1] == [""]:
    del sys.path[0]  # The folder that it is started in may hold a torch.py.

import ctypes
import datetime
import json
import os
import signal
import tempfile
import time

PR_SET_PDEATHSIG = 1


def say(**what: object) -> None:
    print("LOCKSTEP " + json.dumps(what), flush=True)


def tell_version(torch) -> None:
    say(torch=torch.__version__, python=sys.version.split()[0])


def tell_cuda(torch) -> None:
    cuda = {"built_for": torch.version.cuda, "available": False, "gpus": 0, "why": "", "nccl": ""}
    if torch.version.cuda:
        try:
            torch.cuda.init()
            cuda.update(available=True, gpus=torch.cuda.device_count())
        except Exception as error:  # Whatever it raises is the answer.
            cuda["why"] = f"{error}".splitlines()[0]
        try:
            cuda["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
        except Exception:
            pass
    say(cuda=cuda)


def meet(torch, rank: int, interface: str, directory: str, seconds: float) -> None:
    dist = torch.distributed
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    limit = datetime.timedelta(seconds=seconds)
    begun = time.monotonic()
    try:
        store = dist.FileStore(os.path.join(directory, interface.replace("/", "_")), 2)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=limit)
        total = torch.ones(1 << 18) * (rank + 1)
        dist.all_reduce(total)
        right = bool((total == 3).all())
        dist.barrier()
        dist.destroy_process_group()
        if rank == 0:
            say(interface=interface, right=right, ms=round(1000 * (time.monotonic() - begun), 1))
    except Exception as error:
        if rank == 0:
            say(interface=interface, error=f"{error}".splitlines()[0])
        if dist.is_initialized():
            dist.destroy_process_group()


def main(seconds: float, in_all: int, interfaces: list[str]) -> None:
    signal.alarm(in_all)  # Neither of the two outlives that, whatever it is in.
    try:
        import torch
        import torch.distributed
    except ImportError as error:
        say(no_torch=f"{error}")
        return
    tell_version(torch)
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        say(no_gloo=True)
        tell_cuda(torch)
        return
    with tempfile.TemporaryDirectory(prefix="lockstep-doctor-") as directory:
        parent = os.getpid()
        other = os.fork()  # Before CUDA: what has begun that cannot be forked.
        if other == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.alarm(in_all)
            try:
                if os.getppid() == parent:
                    for interface in interfaces:
                        meet(torch, 1, interface, directory, seconds)
            finally:
                os._exit(0)
        for interface in interfaces:
            meet(torch, 0, interface, directory, seconds)
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)
    tell_cuda(torch)


main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
