"""The models that scenarios train, as fixtures/rank_host/models.h has them: the same names, values and arithmetic.

They are ordinary modules of ordinary layers, so that a subject finds in them what it finds in a program. Values are drawn
in float64 from a generator with the seed given, in the order in which the C++ models draw them.
"""

import torch
from torch import nn
from torch.nn import functional

from .batch_norm_models import BATCH_NORM_MODELS, BatchNormNet
from .buffer_models import Ema, Gated, Scaled, Sliced
from .critic_models import Critic, Patches
from .model_base import Model, Values, batch_norm, conv, linear


class LinearInt(Model):
    x, y = (4,), (3,)

    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(values.integers(3, 4))
        self.bias = nn.Parameter(values.integers(3))

    def compute(self, x):
        return functional.linear(x, self.weight, self.bias)

    def row_loss(self, output, target):
        return (output * target).sum(1)


class Mlp(Model):
    x, y = (6,), (2,)

    def __init__(self, values):
        super().__init__()
        sizes = (6, 8, 8, 8, 2)
        for i in range(4):
            weight = values.normal(sizes[i + 1], sizes[i], scale=0.5)
            setattr(self, f"fc{i + 1}", linear(weight, values.normal(sizes[i + 1], scale=0.5)))

    def compute(self, x):
        for layer in (self.fc1, self.fc2, self.fc3):
            x = torch.tanh(layer(x))
        return self.fc4(x)


class ConvBn(Model):
    x, y = (3, 4, 4), (5, 4, 4)

    def __init__(self, values):
        super().__init__()
        weight = values.normal(5, 3, 3, 3, scale=0.3)
        self.conv = conv(weight, values.normal(5, scale=0.3), padding=1)
        scale = 1 + values.normal(5, scale=0.1)
        shift = values.normal(5, scale=0.1)
        running = (values.normal(5, scale=0.1), 1 + values.normal(5, scale=0.1).square(), values.count())
        self.bn = batch_norm(nn.BatchNorm2d, 5, values, scale, shift, running)

    def compute(self, x):
        return self.normalised("bn", self.conv(x))

    def row_loss(self, output, target):
        return (output - target).square().mean((1, 2, 3))


class SharedGradient(Model):
    x, y = (4,), (3,)

    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(values.normal(3, 4, scale=0.5))
        self.first = nn.Parameter(values.normal(3, scale=0.5))
        self.second = nn.Parameter(values.normal(3, scale=0.5))

    def compute(self, x):
        return functional.linear(x, self.weight) + (self.first + self.second)


class Mixed(Model):
    x, y = (4,), (3,)

    def __init__(self, values):
        super().__init__()
        weight = values.normal(4, 4, scale=0.5)
        self.encoder = linear(weight, values.normal(4, scale=0.5))
        self.decoder = linear(self.encoder.weight.detach())
        self.decoder.weight = self.encoder.weight
        self.frozen = nn.Parameter(values.normal(4, scale=0.5), requires_grad=False)
        self.scalar = nn.Parameter(values.normal(scale=0.5))
        self.transposed = nn.Parameter(values.normal(3, 4, scale=0.5).t())
        # Modules have methods of these names, so that only the dictionaries can hold them.
        self._parameters["bfloat16"] = nn.Parameter(values.normal_as(torch.bfloat16, 3, scale=0.5))
        self.unused = nn.Parameter(values.normal(2, 2, scale=0.5))
        self.register_buffer("count", values.count())
        self._buffers["half"] = values.normal(3, scale=0.5).to(torch.float16)
        self.register_buffer("mask", values.normal(6, scale=1) > 0)

    def compute(self, x):
        hidden = torch.tanh(self.encoder(x))
        decoded = self.decoder(hidden) * self.scalar + self.frozen
        return torch.matmul(decoded, self.transposed) + self._parameters["bfloat16"].to(x.dtype)


class Tied(Model):
    x, y = (4,), (4,)

    def __init__(self, values):
        super().__init__()
        weight = values.normal(4, 4, scale=0.5)
        self.encoder = linear(weight, values.normal(4, scale=0.5))
        self.decoder = linear(self.encoder.weight.detach())
        self.decoder.weight = self.encoder.weight

    def compute(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


class Flat(Model):
    """Parameters that are parts of one storage, as flattened ones are."""

    x, y = (4,), (3,)

    def __init__(self, values):
        super().__init__()
        both = values.normal(15, scale=0.5)
        self.weight, self.bias = nn.Parameter(both[:12].view(3, 4)), nn.Parameter(both[12:])

    def compute(self, x):
        return functional.linear(x, self.weight, self.bias)


class Frozen(Model):
    x, y = (4,), (4,)

    def __init__(self, values):
        super().__init__()
        weight = values.normal(4, 4, scale=0.5)
        self.fc = linear(weight, values.normal(4, scale=0.5))
        self.frozen = nn.Parameter(values.normal(4, scale=0.5), requires_grad=False)

    def compute(self, x):
        return torch.tanh(self.fc(x)) * self.frozen


class Branches(Model):
    """Which branch a batch takes is in its values: none, "positive" or "negative"."""

    x, y = (4,), (3,)

    def __init__(self, values):
        super().__init__()
        self.trunk = nn.Parameter(values.normal(3, 4, scale=0.5))
        self.positive = nn.Parameter(values.normal(3, 4, scale=0.5))
        self.negative = nn.Parameter(values.normal(3, 4, scale=0.5))
        self.never = nn.Parameter(values.normal(2, scale=0.5))

    def compute(self, x):
        mean = 0 if x.numel() == 0 else x.mean().item()
        output = functional.linear(x, self.trunk)
        if mean > 5:
            return output + functional.linear(x, self.positive)
        return output + functional.linear(x, self.negative) if mean < -5 else output


class Segmentation(Model):
    x, y = (3, 16, 16), (16, 16)

    def __init__(self, values):
        super().__init__()
        self.first = conv(values.normal(4, 3, 1, 1, scale=0.5))
        self.second = conv(values.normal(24, 4, 1, 1, scale=0.5))

    def compute(self, x):
        return self.second(torch.tanh(self.first(x)))

    def row_loss(self, output, target):
        return (torch.log_softmax(output, 1) * target.unsqueeze(1)).square().mean((1, 2, 3))


CATALOGUE = {
    "linear_int": LinearInt,
    "mlp": Mlp,
    "conv_bn": ConvBn,
    "ema": Ema,
    "gated": Gated,
    "scaled": Scaled,
    "sliced": Sliced,
    "shared_gradient": SharedGradient,
    "mixed": Mixed,
    "branches": Branches,
    "segmentation": Segmentation,
    **{name: lambda values, name=name: BatchNormNet(name, values) for name in BATCH_NORM_MODELS},
    "critic": lambda values: Critic(values, False),
    "critic_bn": lambda values: Critic(values, True),
    "critic_patches": Patches,
    "tied": Tied,
    "flat": Flat,
    "frozen": Frozen,
}


def make_model(name, dtype, seed, widened=False):
    """None if there is no model of this name."""
    make = CATALOGUE.get(name)
    return make(Values(dtype, seed, widened)) if make else None
