"""Models that put another buffer in the place of theirs in each training forward."""

import torch
from torch import nn
from torch.nn import functional

from .model_base import Model


def moved(buffer, towards):
    """Another tensor, not another value: graphs of earlier forwards keep theirs."""
    return buffer * 0.5 + towards * 0.5


class BufferModel(Model):
    """With a weight, and rows of four."""

    x, y = (4,), (4,)

    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(values.normal(4, scale=1))


class Ema(BufferModel):
    def __init__(self, values):
        super().__init__(values)
        self.register_buffer("factor", 1 + values.normal(scale=0.1))
        self.register_buffer("positive", values.count())

    def compute(self, x):
        if self.training:
            with torch.no_grad():
                self.factor = moved(self.factor, x.mean())
                self.positive.add_((x > 0).sum())
        return x * (self.weight * self.factor)

    def row_loss(self, output, target):
        return (output * target).sum(1)


class Gated(BufferModel):
    """Buffers of which a backward reads some: one that is counted in place and not read, two that each forward puts another
    in the place of, and between them one that nobody changes."""

    def __init__(self, values):
        super().__init__(values)
        self.skip = nn.Parameter(values.normal(4, scale=1))
        self.register_buffer("count", values.count())
        self.register_buffer("mask", values.normal(4, scale=1) > 0)
        self.register_buffer("gain", 1 + values.normal(4, scale=0.1))
        self.register_buffer("level", 1 + values.normal(scale=0.1))

    def compute(self, x):
        if self.training:
            with torch.no_grad():
                self.count.add_(1)
                self.mask = x.mean(0) > 0
                self.level = moved(self.level, x.mean())
        opened = (x * self.weight).masked_fill(self.mask, 0.5)
        return x * self.skip + opened * self.gain * self.level


class Scaled(BufferModel):
    """A batch normalisation whose weight is a buffer that each forward puts another in the place of."""

    def __init__(self, values):
        super().__init__(values)
        self.register_buffer("scale", 1 + values.normal(4, scale=0.1))

    def compute(self, x):
        if self.training:
            with torch.no_grad():
                self.scale = moved(self.scale, x.mean(0))
        return functional.batch_norm(x * self.weight, None, None, self.scale, training=True)


class Sliced(BufferModel):
    """A backward that reads a part of a buffer that each forward puts another in the place of."""

    def __init__(self, values):
        super().__init__(values)
        self.register_buffer("scale", 1 + values.normal(6, scale=0.1))

    def compute(self, x):
        if self.training:
            with torch.no_grad():
                self.scale = moved(self.scale, x.mean())
        return x * (self.weight * self.scale[1:5])
