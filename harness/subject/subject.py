"""What the user has named: found, looked at, and told. Its module is imported in the forked host, never in the warm
parent: it may start threads, and it must not be older than the case."""

import importlib
import importlib.util
import os
import sys

import torch
from torch import nn

from . import libraries, where
from .epochs import sampler_shape
from .lines import Unsupported
from .norms import NormAdapter, norm_shape
from .shapes import Mismatch, Shape, ddp_shape
from .wrappers import Adapter

KINDS = ("ddp", "dp", "balanced_dp", "sync_bn", "sampler")

ABSENT = {
    "dp": "not available: on the CPU it is the bare module; needs two CUDA devices",
    "balanced_dp": "not available: replicas within one process need two CUDA devices",
    "sync_bn": "not available: it refuses inputs on the CPU",
}


class Bare(Adapter):
    """The module without its wrapper."""

    def __init__(self, model):
        self.shape, self.thing, self.model, self.options = Shape(form="function"), None, model, {}
        self.made, self.run, self.changed, self.keeps_gradients = None, model, False, False

    def after_backward(self, synchronise):
        pass


class Part:
    """One implementation: a name, a kind, and how it is adapted."""

    def __init__(self, name, kind, thing, absent="", of_pytorch=False):
        self.name, self.kind, self.thing, self.absent, self.of_pytorch = name, kind, thing, absent, of_pytorch
        self.shape = Shape(form="absent") if absent else {"ddp": ddp_shape, "sync_bn": norm_shape, "sampler": sampler_shape}[kind](name, thing)
        declared = getattr(thing, "lockstep", None)
        if isinstance(declared, dict):
            self.shape.contract.update({str(k): str(v) for k, v in declared.items() if k != "offers"})
            for feature in declared.get("offers", ()):
                self.shape.offers[feature] = "declared in its attribute lockstep"
                self.shape.lacks.pop(feature, None)

    def adapt(self, model, options):
        try:
            make = NormAdapter if self.kind == "sync_bn" else Adapter
            return make(self.shape, self.thing, model, options)
        except TypeError as error:
            if where.user_line_of(error):
                raise
            raise Unsupported(str(Mismatch(self.name, f"what the adapter found: {self.shape.words}", f"it cannot be made: {error}"))) from error

    def told(self):
        shape = self.shape
        return {
            "name": self.name, "kind": self.kind, "absent": self.absent, "adapter": shape.words, "offers": shape.offers,
            "lacks": shape.lacks, "defined_at": shape.defined_at, "function": shape.function, "of_pytorch": self.of_pytorch,
        }


def import_module(name):
    """A dotted name, or the path of a file."""
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = os.path.abspath(name)
    stem = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(stem, path)
    if spec is None or not os.path.exists(path):
        raise ModuleNotFoundError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    spec.loader.exec_module(module)
    return module


def need(what, have, help_text):
    return Unsupported(f"{what}: {have}\n{help_text}")


def found(spec):
    """The object that MODULE:NAME names."""
    module_name, colon, name = spec.rpartition(":")
    if not colon or not module_name or not name:
        raise need(spec, "names no object", "need MODULE:NAME, as my_pkg.ddp:MyDDP or ./my_ddp.py:MyDDP, or torch, accelerate, lightning")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise need(spec, str(error), f"need a module that can be imported from {os.getcwd()}; PYTHONPATH, or the path of a file, helps") from error
    except Exception as error:
        raise need(spec, "its module cannot be imported", where.words_of(error)) from error
    thing = module
    for part in name.split("."):
        if not hasattr(thing, part):
            there = sorted(n for n, v in vars(module).items() if not n.startswith("_") and getattr(v, "__module__", "") == module.__name__)
            raise need(spec, f"{module_name} has no {part}", f"it has: {', '.join(there) or 'nothing of its own'}")
        thing = getattr(thing, part)
    return thing


class Subject:
    def __init__(self, spec, kind):
        self.spec, self.kind, self.known = spec, kind, None

    def parts(self):
        if self.known is None:
            if not torch.distributed.is_available():
                raise need(self.spec, "this torch was built without torch.distributed", "need a torch with USE_DISTRIBUTED=1; another: --python")
            self.known = self.of_library() if self.spec in libraries.LIBRARIES else [self.of_user()]
        return self.known

    def know_of_pytorch(self):
        """Looks at PyTorch's own classes once, not in every host: they are older than any case, and long."""
        if self.spec == "torch" and torch.distributed.is_available():
            self.parts()

    def of_library(self):
        library = self.spec
        try:
            importlib.import_module(library)
        except ImportError as error:
            raise need(library, f"this Python cannot import it: {error}", "need one that can: --python INTERPRETER") from error
        parts = []
        for kind, module, name in libraries.LIBRARIES[library]:
            if self.kind in ("", kind):
                thing = getattr(importlib.import_module(module) if module else libraries, name)
                parts.append(Part(f"{library}.{name}", kind, thing, ABSENT.get(kind, ""), of_pytorch=library == "torch"))
        if not parts:
            served = sorted({kind for kind, _, _ in libraries.LIBRARIES[library]})
            raise need(library, f"serves nothing as {self.kind}", f"need --as {' or '.join(served)}, or none for all of them")
        return parts

    def of_user(self):
        kind = self.kind or "ddp"
        thing = found(self.spec)
        name = f"{os.path.splitext(os.path.basename(self.spec.rpartition(':')[0]))[0]}.{self.spec.rpartition(':')[2]}"
        if self.spec.rpartition(":")[0].endswith(".py") is False:
            name = self.spec.replace(":", ".")
        return Part(name, kind, thing, ABSENT.get(kind, "") if kind in ("dp", "balanced_dp") else "")

    def introduction(self):
        return [part.told() for part in self.parts()]

    def names(self):
        return [part.name for part in self.parts()]

    def part(self, name):
        for part in self.parts():
            if part.name == name:
                return part
        raise Unsupported(f"this host has no implementation called {name}")

    def bare(self, model):
        return Bare(model)


def is_module(thing):
    return isinstance(thing, nn.Module)
