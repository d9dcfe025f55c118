"""The adapter of a class that normalises batches over ranks: it takes the place of the batch normalisations of a model, and
the host averages the gradients."""

import contextlib
import inspect
import re

import torch
import torch.distributed as dist
from torch import nn

from . import averaging, model_values, shapes, sources

NUM_FEATURES = ("num_features", "channels", "num_channels", "features", "dim", "n_features", "c", "planes", "size", "in_features")
ROLES = {
    "weight": ("weight", "gamma", "scale", "g", "w"),
    "bias": ("bias", "beta", "shift", "b", "offset"),
    "running_mean": ("running_mean", "moving_mean", "mean", "run_mean", "ema_mean"),
    "running_var": ("running_var", "moving_var", "running_variance", "moving_variance", "var", "run_var", "ema_var"),
    "num_batches_tracked": ("num_batches_tracked", "batches", "num_batches", "step", "steps"),
}
NORM_HELP = """
A class of your own, of ten lines, that has the shape:

    class Adapter(MyNorm):                           # --subject my_adapter:Adapter --as sync_bn
        def __init__(self, num_features, eps=1e-5, momentum=0.1):
            super().__init__(num_features, eps, momentum)   # yours, with what it needs
"""
EXTENTS = {2: (), 3: (6,), 4: (3, 3), 5: (2, 3, 2)}
ACTIVATION = re.compile(r"act(ivat|_|$)|nonlin")
NO_ACTIVATION = ("identity", "none", "linear", None, False, nn.Identity, nn.Identity())


def features_of(thing):
    """The parameter that means the number of features: what it needs first, or what a base has first. Empty: there is none."""
    return next((name for name in sources.signature_of(thing) if name in NUM_FEATURES), "")


class WithAffine(nn.Module):
    """A layer that has no weight and bias of its own, and those that its model gives it."""

    def __init__(self, norm, affine):
        super().__init__()
        self.norm = norm
        self.weight, self.bias = nn.Parameter(affine.weight.detach().clone()), nn.Parameter(affine.bias.detach().clone())

    def forward(self, x):
        def spread(values):
            return values.view(1, -1, *[1] * (x.dim() - 2))

        return self.norm(x) * spread(self.weight) + spread(self.bias)


def make_layer(thing, options):
    """`options`: num_features, eps, momentum, affine, track_running_stats; given where the class has them."""
    positional, named, features = [], {}, features_of(thing)
    for name, parameter in sources.signature_of(thing).items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name == features and parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(options["num_features"])
        elif name == features:
            named[name] = options["num_features"]
        elif name in options:
            named[name] = options[name]
        elif shapes.MEANING_OF.get(name) == "world":
            named[name] = dist.get_world_size()
        elif shapes.MEANING_OF.get(name) == "rank":
            named[name] = dist.get_rank()
        elif parameter.default is parameter.empty:
            named[name] = dist.group.WORLD if shapes.MEANING_OF.get(name) == "group" else None
    return thing(*positional, **named)


def tensors_of(layer):
    """Its parameters and buffers by what they are: names of the model's own layer."""
    if isinstance(layer, WithAffine):
        return {**tensors_of(layer.norm), "weight": layer.weight, "bias": layer.bias}
    own = dict(layer.named_parameters())
    own.update(layer.named_buffers())
    for full, tensor in list(own.items()):  # Of a layer in it, where there is one of that name.
        last = full.rpartition(".")[2]
        if sum(other.rpartition(".")[2] == last for other in own if other != last) == 1:
            own.setdefault(last, tensor)
    found = {}
    for role, names in ROLES.items():
        for name in names:
            if name in own and role not in found:
                found[role] = own[name]
    return found


def norm_shape(name, thing):
    if not inspect.isclass(thing) or not issubclass(thing, nn.Module):
        raise shapes.Mismatch(name, "a class of modules that is given a number of features", f"it is {thing!r}", NORM_HELP)
    parameters, features = sources.signature_of(thing), features_of(thing)
    unknown = [p.name for p in sources.required(parameters) if p.name != features and p.name not in shapes.MEANING_OF]
    if not features or unknown:
        raise shapes.Mismatch(
            name, "a constructor that is given a number of features (num_features)",
            f"{thing.__name__}({', '.join(parameters)}) at {sources.place_of(thing)}", NORM_HELP,
        )
    shape = shapes.Shape(form="sync_bn", words="class of batch normalisation, in the place of the model's own",
                         defined_at=sources.place_of(thing), function=thing.__name__)
    shape.contract = {"gradient": "mean_of_rank_means", "statistics": "global", "buffers": "synchronised", "inner_gradient": "global"}
    source = sources.whole_source(thing)
    if shapes.NARROWED.search(sources.whole_code(thing)):
        shape.lacks["float64"] = "its source makes float32 of tensors"
    for feature in ("affine", "track_running_stats", "momentum", "eps"):
        if feature == "affine" and is_weightless(thing):
            shape.offers[feature] = "it has no weight and bias of its own"
        elif feature in parameters:
            shape.offers[feature] = f"parameter {feature}"
        else:
            shape.lacks[feature] = f"no parameter {feature}"
    equal = shapes.EQUAL_ROWS.search((thing.__doc__ or "") + source)
    if equal:
        shape.lacks["uneven_rows"] = f"it says of itself: {equal.group(0)!r}"
    else:
        shape.offers["uneven_rows"] = "nothing says otherwise"
    biased = shapes.BIASED_RUNNING.search(thing.__doc__ or "")  # What it tells its users, no name and no comment.
    if biased:
        shape.lacks["unbiased_running"] = f"it says of itself: {biased.group(0)!r}; running values are not those of one process"
    else:
        shape.offers["unbiased_running"] = "nothing says otherwise"
    try_dimensions(thing, shape)
    return shape


def is_weightless(thing):
    try:
        return not {"weight", "bias"} & set(tensors_of(make_layer(thing, {"num_features": 4})))
    except Exception:  # It is told when it is used.
        return False


def try_dimensions(thing, shape):
    """Which inputs it is for, found in a group of one, where it has to be ordinary batch normalisation."""
    with group_of_one():
        refused, dtype = refused_inputs(thing, torch.float64), torch.float64
        if all(refused.values()):  # Or it takes nothing wider than float32.
            narrow = refused_inputs(thing, torch.float32)
            if not all(narrow.values()):
                shape.lacks["float64"] = f"in one process, of float64, {next(iter(refused.values()))}"
                refused, dtype = narrow, torch.float32
        if all(refused.values()) and any(bends(thing, dimensions, dtype) for dimensions in EXTENTS):
            switch_activation_off(thing, shape, dtype)
            refused = refused_inputs(thing, dtype, shape.fixed)
        for dimensions, why in refused.items():
            if why:
                refused[dimensions] = f"in one process, of an input of {dimensions} dimensions, {why}"
        refused.update(refused_among_several(thing, dtype, shape.fixed, [d for d, why in refused.items() if not why]))
    for dimensions, why in refused.items():
        feature = f"dim{dimensions}"
        if why:
            shape.lacks[feature] = why
        else:
            shape.offers[feature] = "in one process it gives what batch normalisation gives"
    if not any(feature.startswith("dim") for feature in shape.offers):
        for dimensions in EXTENTS:  # Then its own first mistake is to be seen.
            shape.offers[f"dim{dimensions}"] = shape.lacks.pop(f"dim{dimensions}")


@contextlib.contextmanager
def group_of_one():
    """Unless there is a group."""
    mine = not dist.is_initialized()
    if mine:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        if mine:
            dist.destroy_process_group()


def refused_among_several(thing, dtype, fixed, dimensions):
    """What it takes as one process, as most then do nothing of their own, and not if it is told that there are two: values say
    nothing then, but shapes do. Where it takes nothing at all, that has another reason."""
    real = dist.get_world_size, dist.all_gather
    dist.get_world_size, dist.all_gather = lambda group=None: 2, lambda outputs, x, *_, **_options: [each.copy_(x) for each in outputs]
    try:
        refused = {d: error_of(lambda d=d: plain_layer(thing, dtype, fixed).train()(input_of(d, dtype))) for d in dimensions}
    finally:
        dist.get_world_size, dist.all_gather = real
    if all(refused.values()):
        return {}
    return {d: f"among several processes, of an input of {d} dimensions, {why}" for d, why in refused.items() if why}


def input_of(dimensions, dtype):
    return torch.randn((6, 4, *EXTENTS[dimensions]), generator=torch.Generator().manual_seed(1), dtype=dtype)


def error_of(act):
    try:
        act()
    except Exception as error:
        return f"it raises {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


def refused_inputs(thing, dtype, fixed=None):
    """By number of dimensions why it does not take such an input; empty where it does."""
    return {dimensions: why_not(thing, dimensions, dtype, fixed) for dimensions in EXTENTS}


def plain_layer(thing, dtype, fixed=None):
    """One whose weight and bias do nothing, for four features."""
    layer = make_layer(thing, {"num_features": 4, **(fixed or {})}).to(dtype)
    with torch.no_grad():
        for role, tensor in tensors_of(layer).items():
            if role in ("weight", "bias"):
                tensor.fill_(role == "weight")
    return layer


def normalised(x, layer):
    return nn.functional.batch_norm(x, None, None, None, None, True, 0.0, getattr(layer, "eps", 1e-5))


def why_not(thing, dimensions, dtype, fixed):
    x, seen = input_of(dimensions, dtype), []

    def use():
        layer = plain_layer(thing, dtype, fixed).train()
        seen.append(layer(x))
        layer.eval()(x)
        seen.append(normalised(x, layer))

    why = error_of(use)
    if why:
        return why
    output, expected = seen
    if not isinstance(output, torch.Tensor) or output.shape != expected.shape or (output - expected).abs().max() > 1e-3:
        return "it gives something else than batch normalisation"
    return ""


def bends(thing, dimensions, dtype):
    """Whether it gives a function of each value that batch normalisation gives, and that is no line: who normalises wrongly has
    another factor, or something else for equal values."""
    values, draw = torch.linspace(-1, 1, 48, dtype=dtype), torch.Generator().manual_seed(1)
    channels = [(i + 1) * values[torch.randperm(48, generator=draw)] + i for i in range(4)]
    x = torch.stack(channels).view(4, *{2: (48,), 3: (12, 4), 4: (12, 2, 2), 5: (6, 2, 2, 2)}[dimensions]).transpose(0, 1)
    try:
        layer = plain_layer(thing, dtype).train()
        output = layer(x)
    except Exception:  # It is told otherwise.
        return False
    if not isinstance(output, torch.Tensor) or output.shape != x.shape:
        return False
    rows = output.flatten()[normalised(x, layer).flatten().argsort()].view(48, 4)
    line = torch.lerp(rows[0, 0], rows[-1, 0], (values + 1) / 2)
    return bool((rows.amax(1) - rows.amin(1)).max() < 1e-3 and (rows[:, 0] - line).abs().max() > 1e-2)


def switch_activation_off(thing, shape, dtype):
    """By a parameter whose name means it, and what most of them take for none."""
    for name in filter(ACTIVATION.search, sources.signature_of(thing)):
        for value in NO_ACTIVATION:
            if not all(refused_inputs(thing, dtype, {name: value}).values()):
                shape.fixed = {name: value}
                shape.words += f", made with {name}={getattr(value, '__name__', repr(value))}"
                return
    raise shapes.Mismatch(
        thing.__name__, "the normalisation alone, or a parameter activation that takes 'identity' or None",
        f"{thing.__name__} at {sources.place_of(thing)} makes something else of what it has normalised (an activation), and no "
        "parameter leaves that out", NORM_HELP,
    )


class NormAdapter:
    """The model with the subject's layers in it."""

    changed = False

    def __init__(self, shape, thing, model, options):
        self.shape, self.model, self.options = shape, model, options
        self.layers, self.options_of = {}, {}
        for name, layer in list(model.named_children()):
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                self.layers[name] = self.replace(thing, name, layer)

    def replace(self, thing, name, layer):
        options = {
            "num_features": layer.num_features, "eps": layer.eps, "momentum": layer.momentum, "affine": layer.affine,
            "track_running_stats": layer.track_running_stats,
        }
        self.options_of[name] = options
        new = make_layer(thing, {**options, **self.shape.fixed})
        if layer.affine and not {"weight", "bias"} & set(tensors_of(new)):
            new = WithAffine(new, layer)
        new = new.to(next(self.model.parameters()).dtype)
        setattr(self.model, name, new)
        own, found = dict(layer.named_parameters()), tensors_of(new)
        own.update(layer.named_buffers())
        with torch.no_grad():
            for role, value in own.items():
                if role in found:
                    found[role].copy_(value)
        return new

    def names(self, model, buffers):
        roles = ("running_mean", "running_var") if buffers else ("weight", "bias")
        own = {id(t) for layer in self.layers.values() for t in list(layer.parameters()) + list(layer.buffers())}
        plain = model.named_buffers() if buffers else model_values.parameters_of(model)
        for name, tensor, *tied in plain:
            if id(tensor) not in own and not any(tied):
                yield name, tensor
        for name, layer in self.layers.items():
            found = tensors_of(layer)
            # Nobody reads how many batches there were, unless running values are means over them.
            counted = ("num_batches_tracked",) if buffers and self.options_of[name]["momentum"] is None else ()
            for role in roles + counted:
                if role in found:
                    yield f"{name}.{role}", found[role]

    def named_parameters(self, model):
        return self.names(model, buffers=False)

    def named_buffers(self, model):
        return self.names(model, buffers=True)

    def train(self, on):
        self.model.train(on)

    def zero_grad(self):
        for parameter in self.model.parameters():
            parameter.grad = None

    def forward(self, x):
        return self.model(x)

    def synchronised(self, _on):
        return torch.enable_grad() if torch.is_grad_enabled() else torch.no_grad()

    def backward(self, loss):
        loss.backward()

    def after_backward(self, synchronise):
        if synchronise:
            averaging.average(self.model.parameters())

    def contract(self):
        return dict(self.shape.contract)
