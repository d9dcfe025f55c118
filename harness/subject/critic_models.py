"""The critics of a GAN, as fixtures/rank_host/critic_models.h has them."""

import torch
from torch import nn
from torch.nn import functional

from .model_base import Model, batch_norm, linear


class Critic(Model):
    def __init__(self, values, normalises):
        super().__init__()
        self.x = self.y = (4,) if normalises else (2, 2)
        sizes, scales = (4, 6, 6, 1), (3, 0.9, 0.4)
        for i in range(3):
            weight = values.normal(sizes[i + 1], sizes[i], scale=scales[i])
            setattr(self, f"fc{i + 1}", linear(weight, values.normal(sizes[i + 1], scale=0.3)))
            if normalises and i < 2:
                scale = 1 + values.normal(sizes[i + 1], scale=0.1)
                shift = values.normal(sizes[i + 1], scale=0.1)
                zeros, ones = torch.zeros(sizes[i + 1], dtype=values.dtype), torch.ones(sizes[i + 1], dtype=values.dtype)
                running = (zeros, ones, torch.zeros((), dtype=torch.int64))
                norm = batch_norm(nn.BatchNorm1d, sizes[i + 1], values, scale, shift, running, eps=1e-3)
                setattr(self, f"norm{i + 1}", norm)
        self.normalises = normalises
        self.scale_to_slopes_of_one(values.normal(32, sizes[0], scale=1))

    def scale_to_slopes_of_one(self, x):
        """The inner gradients of a few rows then have norms on both sides of one, whatever the seed."""
        hidden = x.requires_grad_()
        for i in (1, 2, 3):
            hidden = getattr(self, f"fc{i}")(hidden)
            if self.normalises and i < 3:
                norm = getattr(self, f"norm{i}")
                hidden = functional.batch_norm(hidden, None, None, norm.weight, norm.bias, True, 0.0, norm.eps)
            if i < 3:
                hidden = torch.tanh(hidden)
        (slopes,) = torch.autograd.grad(hidden.sum(), x)
        with torch.no_grad():
            self.fc3.weight.div_(slopes.norm(2, 1).median())

    def compute(self, x):
        x = x.flatten(1)
        for i in (1, 2):
            x = getattr(self, f"fc{i}")(x)
            x = torch.tanh(self.normalised(f"norm{i}", x) if self.normalises else x)
        return self.fc3(x)

    def row_loss(self, output, target):
        return output.squeeze(1) * target.flatten(1).mean(1)


class Patches(Model):
    """Several outputs a row, and rows where nothing depends on the input."""

    x = y = (4,)

    def __init__(self, values):
        super().__init__()
        self.first, self.bias = nn.Parameter(values.normal(2, 4, scale=1)), nn.Parameter(values.normal(2, scale=0.3))
        self.second = nn.Parameter(values.normal(3, 2, scale=1))

    def compute(self, x):
        return functional.linear(torch.relu(functional.linear(x, self.first, self.bias)), self.second)

    def row_loss(self, output, target):
        return output.sum(1) * target.mean(1)
