"""A program with torch for the storm: two seconds of training over Gloo."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
until = torch.tensor([time.monotonic() + 2.0])
dist.broadcast(until, 0)
steps = torch.tensor([1])
while steps.item():
    model(torch.ones(2, 4)).sum().backward()
    steps.fill_(int(dist.get_rank() == 0 and time.monotonic() < until.item()))
    dist.all_reduce(steps)
    time.sleep(0.02)
dist.destroy_process_group()
