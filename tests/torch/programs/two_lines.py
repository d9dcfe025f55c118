"""Three all-reduces from one line and a barrier from another."""

import torch
import torch.distributed as dist


def train_step(gradient):
    dist.all_reduce(gradient)  # SITE: reduce


def main():
    dist.init_process_group("gloo")
    gradient = torch.ones(4)
    for _ in range(3):
        train_step(gradient)
    dist.barrier()  # SITE: barrier
    print("rank", dist.get_rank(), "has", gradient[0].item())
    dist.destroy_process_group()


main()
