"""The models that scenarios train, as fixtures/rank_host/models.h has them: the same names, values and arithmetic.

They are ordinary modules of ordinary layers, so that a subject finds in them what it finds in a program. Values are drawn
in float64 from a generator with the seed given, in the order in which the C++ models draw them.
"""

import torch
from torch import nn
from torch.nn import functional


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


class Ema(Model):
    x, y = (4,), (4,)

    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(values.normal(4, scale=1))
        self.register_buffer("factor", 1 + values.normal(scale=0.1))

    def compute(self, x):
        if self.training:
            # Another tensor, not another value: graphs of earlier forwards keep theirs.
            with torch.no_grad():
                self.factor = self.factor * 0.5 + x.mean() * 0.5
        return x * (self.weight * self.factor)

    def row_loss(self, output, target):
        return (output * target).sum(1)


class Gated(Model):
    """Buffers of which a backward reads some: one that is counted in place and not read, two that each forward puts another
    in the place of, and between them one that nobody changes."""

    x, y = (4,), (4,)

    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(values.normal(4, scale=1))
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
                self.level = self.level * 0.5 + x.mean() * 0.5
        opened = (x * self.weight).masked_fill(self.mask, 0.5)
        return x * self.skip + opened * self.gain * self.level


class Scaled(Model):
    """A batch normalisation whose weight is a buffer that each forward puts another in the place of."""

    x, y = (4,), (4,)

    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(values.normal(4, scale=1))
        self.register_buffer("scale", 1 + values.normal(4, scale=0.1))

    def compute(self, x):
        if self.training:
            with torch.no_grad():
                self.scale = self.scale * 0.5 + x.mean(0) * 0.5
        return nn.functional.batch_norm(x * self.weight, None, None, self.scale, training=True)


class Sliced(Model):
    """A backward that reads a part of a buffer that each forward puts another in the place of."""

    x, y = (4,), (4,)

    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(values.normal(4, scale=1))
        self.register_buffer("scale", 1 + values.normal(6, scale=0.1))

    def compute(self, x):
        if self.training:
            with torch.no_grad():
                self.scale = self.scale * 0.5 + x.mean() * 0.5
        return x * (self.weight * self.scale[1:5])


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


CHANNELS = 4
BATCH_NORM_MODELS = {  # Shape beyond the channels, layer, and what of it is not usual.
    "bn_rows": ((), nn.BatchNorm1d, {}),
    "bn_sequence": ((6,), nn.BatchNorm1d, {}),
    "bn_volume": ((2, 3, 2), nn.BatchNorm3d, {}),
    "bn_cumulative": ((), nn.BatchNorm1d, {"momentum": None}),
    "bn_constant": ((), nn.BatchNorm1d, {"momentum": 0.0}),
    "bn_frozen": ((), nn.BatchNorm1d, {"trains": False}),
    "bn_plain": ((), nn.BatchNorm1d, {"affine": False}),
    "bn_stateless": ((), nn.BatchNorm1d, {"running": False}),
    "bn_input": ((), nn.BatchNorm1d, {"mixes_first": False}),
}


class BatchNormNet(Model):
    def __init__(self, kind, values):
        super().__init__()
        beyond, layer, usual = BATCH_NORM_MODELS[kind]
        self.x = self.y = (CHANNELS, *beyond)
        self.mixes_first = usual.get("mixes_first", True)
        mix = torch.eye(CHANNELS, dtype=values.dtype) + values.normal(CHANNELS, CHANNELS, scale=0.3)
        mix[CHANNELS - 1] *= 5e-3
        self.mix = nn.Module()
        self.mix.weight = nn.Parameter(mix)
        weight = bias = running = None
        if usual.get("affine", True):
            weight = 1 + values.normal(CHANNELS, scale=0.2)
            bias = values.normal(CHANNELS, scale=0.2)
        if usual.get("running", True):
            mean = values.normal(CHANNELS, scale=0.1)
            running = (mean, 1 + values.normal(CHANNELS, scale=0.1).square(), values.count())
        self.bn = batch_norm(layer, CHANNELS, values, weight, bias, running, usual.get("momentum", 0.1))
        if not usual.get("trains", True):
            self.bn.requires_grad_(False)
        if not self.mixes_first and values.dtype in (torch.bfloat16, torch.float16):
            self.bn.float()

    def compute(self, x):
        beyond = 1
        for extent in self.x[1:]:
            beyond *= extent

        def mixed(values):
            return torch.matmul(self.mix.weight, values.reshape(x.shape[0], CHANNELS, beyond)).reshape(x.shape)

        return torch.tanh(self.normalised("bn", mixed(x)) if self.mixes_first else mixed(self.normalised("bn", x)))

    def row_loss(self, output, target):
        return (output - target).square().flatten(1).mean(1)


class Critic(Model):
    x, y = (4,), (4,)

    def __init__(self, values, normalises):
        super().__init__()
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
        for i in (1, 2):
            x = getattr(self, f"fc{i}")(x)
            x = torch.tanh(self.normalised(f"norm{i}", x) if self.normalises else x)
        return self.fc3(x)

    def row_loss(self, output, target):
        return output.squeeze(1) * target.mean(1)


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
    "tied": Tied,
    "frozen": Frozen,
}


def make_model(name, dtype, seed, widened=False):
    """None if there is no model of this name."""
    make = CATALOGUE.get(name)
    return make(Values(dtype, seed, widened)) if make else None
