"""What the models that scenarios train are made of: their values, their layers, and what hears them."""

import torch
from torch import nn


class Values:
    """The values with which a model begins."""

    def __init__(self, dtype, seed, widened=False):
        self.dtype, self.widened = dtype, widened
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape, scale):
        return (torch.randn(shape, generator=self.generator, dtype=torch.float64) * scale).to(self.dtype)

    def normal_as(self, narrow, *shape, scale):
        rounded = self.normal(*shape, scale=scale).to(narrow)
        return rounded.to(self.dtype) if self.widened else rounded

    def integers(self, *shape):
        return torch.randint(-3, 4, shape, generator=self.generator, dtype=torch.float64).to(self.dtype)

    def count(self):
        return torch.randint(1, 1000, (), generator=self.generator, dtype=torch.int64)


class Recorder:
    """Hears what a model's forward finds, gives and leaves; does nothing unless somebody listens."""

    def __init__(self):
        self.listener = None

    def __deepcopy__(self, memo):
        return self  # A copy of a model is heard as the model is.

    def __reduce__(self):
        return (Recorder, ())

    def tell(self, moment, model, value=None):
        if self.listener is not None:
            self.listener(moment, model, value)


class Model(nn.Module):
    """Shapes: input [rows, *x], output [rows, ...]; row_loss gives [rows]."""

    x = y = ()

    def __init__(self):
        super().__init__()
        self.recorder = Recorder()

    def forward(self, x):
        self.recorder.tell("forward_entry", self)
        output = self.compute(x)
        self.recorder.tell("after_forward", self)
        return output

    def normalised(self, layer, x):
        output = getattr(self, layer)(x)
        self.recorder.tell("norm/" + layer, self, output)
        return output

    def row_loss(self, output, target):
        return (output - target).square().sum(1)


def layer_of(module, weight=None, bias=None):
    """A layer with these values in the place of its own."""
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None:
            setattr(module, name, nn.Parameter(value))
    return module


def linear(weight, bias=None):
    empty = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    return layer_of(empty, weight, bias)


def conv(weight, bias=None, padding=0):
    empty = nn.Conv2d(weight.shape[1], weight.shape[0], weight.shape[2:], padding=padding, bias=bias is not None, device="meta")
    return layer_of(empty, weight, bias)


def batch_norm(kind, channels, values, weight=None, bias=None, running=None, momentum=0.1, eps=1e-5):
    """`running`: mean, variance, batches; None: no running statistics."""
    layer = kind(channels, eps=eps, momentum=momentum, affine=weight is not None, track_running_stats=running is not None, dtype=values.dtype)
    layer_of(layer, weight, bias)
    if running is not None:
        layer.running_mean, layer.running_var, layer.num_batches_tracked = running
    return layer
