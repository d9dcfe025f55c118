"""Microseconds of one small all-reduce of two ranks over Gloo: what a tenth of rank 0's batches stay below."""

import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

BATCHES, CALLS = 100, 30


def rank_main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    tensor, took = torch.ones(8), []
    for _ in range(BATCHES):
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        took.append((time.perf_counter_ns() - begin) / CALLS / 1000)
    if rank == 0:
        print(statistics.quantiles(took[BATCHES // 10:], n=10)[0], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as meeting:
        mp.spawn(rank_main, args=(meeting,), nprocs=2)
