"""A small data parallelism of one's own, and the adapter of one that has another shape.

    lockstep suite --subject ./my_ddp.py:MyDDP --as ddp
    lockstep suite --subject ./my_ddp.py:Adapter --as ddp
"""

import torch.distributed as dist
from torch import nn


class MyDDP(nn.Module):
    """Has the shape: a module around a module, and a method to be called after backward."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)

    def forward(self, *inputs):
        return self.module(*inputs)

    def finish_gradient_synchronization(self):
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()


class Engine:
    """Has not: it wants a dictionary, and its reduction has another name."""

    def __init__(self, settings):
        self.module = settings["module"]

    def exchange(self):
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()


class Adapter(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.engine = Engine({"module": module})

    def forward(self, *inputs):
        return self.module(*inputs)

    def finish_gradient_synchronization(self):
        self.engine.exchange()
