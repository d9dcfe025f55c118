"""Microseconds of one DDP step of a small MLP on two ranks over Gloo: what a tenth of rank 0's steps stay below.

(Of a busy machine the median tells more than of the program.)
"""

import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.nn  # noqa: F401 - imported later, as by DDP, it keeps the group until Python is gone
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

WARM, STEPS = 50, 500


def rank_main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch, took = torch.randn(64, 128), []
    for _ in range(WARM + STEPS):
        begin = time.perf_counter_ns()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        took.append((time.perf_counter_ns() - begin) / 1000)
    if rank == 0:
        print(statistics.quantiles(took[WARM:], n=10)[0], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as meeting:
        mp.spawn(rank_main, args=(meeting,), nprocs=2)
