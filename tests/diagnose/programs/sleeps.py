"""Rank 1 sleeps for a while before it joins the others in a collective."""

import sys
import time

import torch
import torch.distributed as dist


def prepare(seconds: float) -> None:
    if dist.get_rank() == 1:
        time.sleep(seconds)  # SITE: sleep


def main(seconds: float) -> None:
    dist.init_process_group("gloo")
    total = torch.ones(8)
    for step in range(3):
        dist.all_reduce(total)
    prepare(seconds)
    dist.all_reduce(total)  # SITE: sum
    dist.destroy_process_group()


main(float(sys.argv[1]))
