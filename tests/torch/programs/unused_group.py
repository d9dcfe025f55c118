"""Rank 1 issues nothing at all, on groups that it is a member of; then the same again after a new start."""

import os

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, rank == 0)


def one_world(name):
    dist.init_process_group("gloo", store=dist.PrefixStore(name, store), rank=rank, world_size=world)
    pair = dist.new_group([0, 1])
    dist.new_group([0])
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), group=pair, async_op=True)
        del work
    dist.destroy_process_group()


one_world("first")
one_world("second")
store.set(f"done {rank}", "")
store.wait([f"done {other}" for other in range(world)])
