import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def told(name, values):
    both = [None, None]
    dist.all_gather_object(both, [int(value) for value in values.flatten()])
    if rank == 0:
        print(name, *both, flush=True)
    return both


def fresh():
    return torch.arange(8.0) + 10 * (rank + 1)


base = fresh()
dist.all_reduce(base[::2])
reduced = told("all_reduce", base[::2])
between = told("in its gaps", base[1::2])
base = fresh()
dist.broadcast(base[::2], 0)
sent = told("broadcast", base[::2])
base = fresh()
dist.all_reduce(base.view(4, 2).t())
transposed = told("all_reduce, transposed", base)
try:
    dist.send(fresh()[::2], 1) if rank == 0 else dist.recv(fresh()[::2], 0)
    refused = False
except RuntimeError as error:
    refused = "contiguous" in str(error)
same = (
    reduced == [[30, 34, 14, 16], [30, 34, 24, 26]]
    and between == [[32, 36, 15, 17], [32, 36, 25, 27]]
    and sent == [[10, 12, 14, 16], [10, 12, 24, 26]]
    and transposed == [[30, 32, 34, 36, 38, 40, 42, 44]] * 2
    and refused
)
dist.destroy_process_group()
sys.exit(0 if same else 1)
