"""Every call on a backend itself, on two ranks, and a ProcessGroup around another one. Prints what is issued by each."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, rank == 0)


def backend_in(prefix):
    return dist.ProcessGroupGloo(dist.PrefixStore(prefix, store), rank, world, timedelta(seconds=60))


def ones(size=4):
    return torch.ones(size)


def rooted(options):
    options.rootRank = 1
    return options


group = backend_in("a/backend")
lists = [[ones(), ones()]] if rank == 0 else []
calls = [
    ("all_reduce", lambda: group.allreduce([ones()], c10d.AllreduceOptions())),
    ("all_reduce", lambda: group.allreduce(ones())),
    ("all_reduce_coalesced", lambda: group.allreduce_coalesced([ones(), ones()], c10d.AllreduceCoalescedOptions())),
    ("broadcast", lambda: group.broadcast([ones()], rooted(c10d.BroadcastOptions()))),
    ("reduce", lambda: group.reduce([ones()], rooted(c10d.ReduceOptions()))),
    ("all_gather", lambda: group.allgather([[ones(), ones()]], [ones()], c10d.AllgatherOptions())),
    ("all_gather_into_tensor", lambda: group._allgather_base(ones(8), ones(), c10d.AllgatherOptions())),
    ("reduce_scatter", lambda: group.reduce_scatter([ones()], [[ones(), ones()]], c10d.ReduceScatterOptions())),
    ("reduce_scatter_tensor", lambda: group._reduce_scatter_base(ones(), ones(8), c10d.ReduceScatterOptions())),
    ("gather", lambda: group.gather(lists, [ones()], c10d.GatherOptions())),
    ("scatter", lambda: group.scatter([ones()], lists, c10d.ScatterOptions())),
    ("all_to_all_single", lambda: group.alltoall_base(ones(8), ones(8), [4, 4], [4, 4], c10d.AllToAllOptions())),
    ("barrier", lambda: group.barrier(c10d.BarrierOptions())),
    ("send", lambda: group.send([ones()], 1, 7)) if rank == 0 else ("recv", lambda: group.recv([ones()], 0, 7)),
]
print(*(name for name, _ in calls), flush=True)
for _, call in calls:
    call().wait()

around = dist.ProcessGroup(store, rank, world)
around._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
around._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend_in("around"))
around.allreduce([ones()], c10d.AllreduceOptions()).wait()
around._get_backend(torch.device("cpu")).allreduce([ones()], c10d.AllreduceOptions()).wait()

dist.init_process_group("gloo", store=dist.PrefixStore("world", store), rank=rank, world_size=world)
dist.all_reduce(ones())
try:
    group.allreduce([ones().to_sparse(), ones()], c10d.AllreduceOptions())
except (RuntimeError, ValueError) as error:
    print(type(error).__name__, flush=True)
dist.destroy_process_group()
