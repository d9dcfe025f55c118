"""The mean of gradients over all ranks, by the host itself: where the subject is a layer, and no wrapper stands around
the model. What is issued here is not the subject's."""

import torch.distributed as dist


def average(parameters):
    for parameter in parameters:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(dist.get_world_size())
