"""FSDP2: rank 1 reads its labels, from a pipe that nobody has written to, before its third step."""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def read_labels(path: str) -> None:
    with open(path, "r+b", buffering=0) as pipe:
        pipe.read(1)  # SITE: read


def main(path: str) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    for layer in model:
        fully_shard(layer, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        if step == 2 and dist.get_rank() == 1:
            read_labels(path)
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).pow(2).mean()  # SITE: forward
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()
    os._exit(0)  # As healthy.py.


main(sys.argv[1])
