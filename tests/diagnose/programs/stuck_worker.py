"""DDP: a worker of rank 1's data loader reads from a pipe that nobody has written to."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self, path: str) -> None:
        self.path = path

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 12 and self.path:
            with open(self.path, "r+b", buffering=0) as pipe:
                pipe.read(1)  # SITE: worker
        return torch.randn(6)


def main(path: str) -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(6, 2))
    for batch in DataLoader(Samples(path if dist.get_rank() == 1 else ""), batch_size=4, num_workers=1):  # SITE: loader
        model(batch).pow(2).mean().backward()  # SITE: backward
    dist.destroy_process_group()
    os._exit(0)  # As healthy.py.


main(sys.argv[1])
