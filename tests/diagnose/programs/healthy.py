"""DDP that is well, and whose rank 1 is always the last: the others wait for it for a moment in each step."""

import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(path: str) -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    over = torch.zeros(1)
    step = 0
    while not over.item():
        step += 1
        if step == 5 and dist.get_rank() == 1:
            pathlib.Path(path + ".begun").touch()
        if dist.get_rank() == 1:
            time.sleep(0.2)
            over = torch.tensor([float(os.path.exists(path))])
        model(torch.randn(32, 64)).pow(2).mean().backward()
        dist.broadcast(over, src=1)
    dist.destroy_process_group()
    os._exit(0)  # Whoever still holds the group (DDP's reducer does) has Gloo's threads run on into Python's end.


main(sys.argv[1])
