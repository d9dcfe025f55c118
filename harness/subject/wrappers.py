"""The adapters of module wrappers and of functions: one object per wrapped model, driven step by step."""

import contextlib
import dataclasses

import torch
import torch.distributed as dist
from torch import nn

from . import shapes, sources


def dtype_for(model, parameter):
    """Of what is sent: a narrower type than the model's is a choice that a case must have asked for."""
    widest = next((p.dtype for p in model.parameters()), None)
    return widest if isinstance(parameter.default, torch.dtype) and parameter.default.is_floating_point else None


def value_of(meaning, options, parameter):
    """What a parameter of this meaning is given; None where its default stays."""
    if meaning == "rank":
        return dist.get_rank()
    if meaning == "world":
        return dist.get_world_size()
    needed = parameter.default is parameter.empty
    if meaning.startswith("bucket"):
        capacity = options.get("bucket_cap_bytes")
        if meaning == "bucket":
            return 64 if needed else None  # Bytes, elements or megabytes: several buckets, or one.
        if capacity is None and not needed:
            return None
        return capacity or 1 << 20 if meaning == "bucket_bytes" else (capacity or 1 << 20) / (1 << 20)
    if not needed:
        return None
    return {"group": dist.group.WORLD, "device": torch.device("cpu"), "none": None, "root": 0, "backend": "gloo"}.get(meaning)


# Options of a case that are handed over under their own names, where a subject has a parameter of that name.
OPTIONS = ("broadcast_buffers", "forward_sync_buffers", "find_unused_parameters", "static_graph", "gradient_as_bucket_view")


def arguments_for(thing, model, options):
    """Arguments of a call: the module or its parameters first, the rest by the meaning of their names."""
    positional, named, first = [], {}, True
    for name, parameter in sources.signature_of(thing).items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if first or name in shapes.MODULE_NAMES:
            value = list(model.parameters()) if name in shapes.PARAMETER_NAMES else model
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[name] = value
            elif first:
                positional.append(value)
            else:
                named[name] = value
            first = False
            continue
        if name in OPTIONS and name in options:
            named[name] = options[name]
            continue
        meaning = shapes.MEANING_OF.get(name)
        value = value_of(meaning, options, parameter) if meaning else None
        if meaning is None:
            needed = parameter.default is parameter.empty
            value = shapes.of_annotation(parameter) if needed else dtype_for(model, parameter)
        if value is not None or parameter.default is parameter.empty:
            named[name] = value
    return positional, named


def ignore(thing, model, name):
    """By the class's own way, in the format it documents: module name, dot, parameter name, also where the first is empty."""
    own_way = getattr(thing, "_set_params_and_buffers_to_ignore_for_model", None)
    if own_way is None:
        model._ddp_params_and_buffers_to_ignore = [name]
        return
    own_way(model, [
        f"{module_name}.{parameter_name}"
        for module_name, module in model.named_modules()
        for parameter_name, _ in module.named_parameters(recurse=False)
        if name == f"{module_name}.{parameter_name}".lstrip(".")
    ])


def call(thing, model, options):
    positional, named = arguments_for(thing, model, options)
    return thing(*positional, **named)


def comm_hook(name):
    """PyTorch's own, with the state that it needs. Post-local SGD averages within a subgroup from its second step on; a
    subgroup of all ranks gives what the contract says."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook  # Imports much.

    if name == "post_localSGD":
        state = post_localSGD_hook.PostLocalSGDState(process_group=None, subgroup=dist.group.WORLD, start_localSGD_iter=1)
        return state, post_localSGD_hook.post_localSGD_hook
    return None, getattr(default_hooks, f"{name}_hook")


class Adapter:
    """One wrapped model. `run` is what forward is called on."""

    def __init__(self, shape, thing, model, options):
        self.shape, self.thing, self.model, self.options = shape, thing, model, options
        self.made = None
        self.run = model
        before = {name: p.detach().clone() for name, p in list(model.named_parameters()) + list(model.named_buffers())}
        if "ignored" in options:
            ignore(thing, model, options["ignored"])
        if shape.form != "function":
            self.made = call(thing, model, options)
        if shape.form in ("factory", "installer") and self.made is not None and self.made is not model:
            self.shape = dataclasses.replace(shape)
            shapes.find_use(self.shape, type(self.made), sources.whole_code(type(self.made)))
        if shape.form in ("wrapper", "factory") or callable(getattr(self.made, "forward", None)):
            self.run = self.made
        if "hook" in options:
            self.made.register_comm_hook(*comm_hook(options["hook"]))
        after = dict(list(model.named_parameters()) + list(model.named_buffers()))
        self.changed = any(name not in after or not torch.equal(after[name], value) for name, value in before.items())
        # Gradients that are there before any backward are views of a buffer: they are kept, and set to zero.
        self.keeps_gradients = options.get("keep_gradients", False) or any(p.grad is not None for p in model.parameters())

    def train(self, on):
        for module in (self.run, self.model):
            if isinstance(module, nn.Module):
                module.train(on)

    def zero_grad(self):
        if self.shape.start:
            getattr(self.made, self.shape.start)()
        if self.shape.own_zero_grad:
            self.made.zero_grad()
        elif self.keeps_gradients:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()
        else:
            for parameter in self.model.parameters():
                parameter.grad = None

    def forward(self, x):
        return self.run(x)

    @contextlib.contextmanager
    def synchronised(self, on):
        """Around the forwards and the backward of a micro-batch."""
        switch = self.shape.sync_switch
        if on or not switch:
            if switch and "(" not in switch and " " not in switch:
                self.set_switch(switch, on)
            yield
        elif switch.endswith("()"):
            with getattr(self.made, switch[:-2])():
                yield
        elif " " in switch:
            yield
        else:
            self.set_switch(switch, False)
            yield
            self.set_switch(switch, True)

    def set_switch(self, switch, on):
        if switch.startswith("set_"):
            getattr(self.made, switch)(on)
        else:
            setattr(self.made, switch, on)

    def backward(self, loss):
        if self.shape.own_backward:
            self.made.backward(loss)
        else:
            loss.backward()

    def after_backward(self, synchronise):
        if not synchronise:
            return
        if self.shape.form == "function":
            call(self.thing, self.model, self.options)
        elif self.shape.finish:
            finish = getattr(self.made, self.shape.finish)
            finish(**{p.name: value_of(shapes.MEANING_OF[p.name], self.options, p) for p in sources.required(sources.signature_of(finish))})

    def join(self, kind):
        if kind == "disabled":
            return self.made.join(enable=False)
        return self.made.join(
            divide_by_initial_world_size=kind != "active",
            throw_on_early_termination=kind == "throw",
        )

    def contract(self):
        declared = dict(self.shape.contract)
        offers = self.shape.offers
        if "initial" in offers:
            declared["initial"] = "rank0"
        if "broadcast_buffers" in offers or "forward_sync_buffers" in offers:
            on = self.options.get("broadcast_buffers", True) and self.options.get("forward_sync_buffers", True)
            declared["buffers"] = "rank0" if on else "local"
        if "join" in offers:
            declared["uneven"] = "join"
        return declared
