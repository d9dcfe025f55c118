"""Which shape a user's implementation has, found by inspection: of names that mean something, of signatures, and of what
its source says of itself. Nothing here knows a class or a file."""

import dataclasses
import inspect
import re

from torch import nn

from .lines import Unsupported
from .sources import REDUCES, code_of, first_call, place_of, reached_from, required, signature_of, source_of, whole_code

# Public methods that a training loop calls after backward, by what their names mean.
ENDS = re.compile(r"^(finish|finali[sz]e|wait|flush|complete|synchroni[sz]e|sync|reduce|all_?reduce|average|step_done|post_backward|after_backward)")
OF_GRADIENTS = re.compile(r"grad|reduc|bucket|backward|^(synchroni[sz]e|sync|wait|finish|finali[sz]e|flush|average|all_?reduce)$|finish|_sync$|handles|comm")
NOT_OF_GRADIENTS = re.compile(r"param(?!.*grad)|buffer|weight|state|model|module|forward|no_sync|init|broadcast")
FIRST = re.compile(r"finish|finali[sz]e|wait|flush|complete|post_backward|after_backward")
STARTS = re.compile(r"^(reset(_.*(grad|bucket|buffer|step|state).*)?|on_train_batch_start|prepare_for_backward|begin_step|start_step)$")
HOOKED = re.compile(r"register_(post_accumulate_grad_|full_backward_|backward_)?hook|register_comm_hook|queue_callback|expand_as")
EQUAL_ROWS = re.compile(
    r"(equal|same|identical)[ -](batch|number|size|weight|amount|local batch)[\w ]{0,30}|stats_mode|evenly|divisible", re.IGNORECASE
)
BIASED_RUNNING = re.compile(r"running[\w ]{0,30}(?<!un)biased|(?<!un)biased[\w ]{0,20}running", re.IGNORECASE)
OF_A_STEP = re.compile(r"grad|bucket|ready|pending|handle|work|count|step|queue")
SETS_VALUES = re.compile(r"load_state_dict|copy_\(|reset_parameters|\binit\b|\.data\b")
NARROWED = re.compile(r"\.float\(\)|\bfloat32\b")
OPTIMIZER_NAMES = ("optimizer", "optim", "opt")
INSTALLS = re.compile(r"hook|register|attach|install|setup|set_up|patch")
WRAPS = re.compile(r"wrap|ddp|data_?parallel|make|get|create|prepare|build|distribute")
OF_VALUES = re.compile(r"param(?!.*grad)|state_dict|weight|sync_module_state|tensors|module_states")
SAYS_IT_BROADCASTS = re.compile(
    r"param(eter)?s?\b[\w ]{0,60}\bbroadcasts?\b|\bbroadcasts?\b[\w ]{0,40}\bparam|from rank 0|rank 0's param", re.IGNORECASE
)
BROADCASTS = re.compile(r"broadcast(?!_buffers)|sync_module_state|sync_param", re.IGNORECASE)
SENDS = re.compile(r"\b(all_?reduce|reduce|reduce_scatter|all_?gather|i?send|broadcast)(_\w+)?\(")
OF_A_LOOP = re.compile(r"^(forward|backward|step|train|eval|fit|zero_grad|state_dict|load_state_dict|clip.*)$")
CALLS_OF_GRADIENTS = re.compile(r"\.grad\b|\b(?!\w*(?:no_grad|enable_grad|set_grad|requires_grad|is_grad))\w*grad\w*\(")

MEANINGS = {
    "rank": ("rank", "global_rank", "dp_rank", "my_rank", "rank_id", "proc_rank", "process_rank", "local_rank", "process_index",
             "process_id", "proc_id", "data_parallel_rank", "shard_id", "shard_index", "replica_id", "replica_rank"),
    "world": ("world_size", "num_replicas", "n_ranks", "num_ranks", "nranks", "n_replicas", "dp_size", "dp_world_size", "num_processes",
              "world", "data_parallel_size", "data_parallel_world_size", "num_shards", "group_size", "replicas",
              "local_size", "local_world_size"),  # All ranks are on this host.
    "group": ("process_group", "group", "pg", "dp_group", "data_parallel_group", "proc_group", "dp_process_group"),
    "device": ("device",),
    "none": ("device_ids", "output_device", "device_mesh", "mesh"),
    "root": ("src", "root", "src_rank", "root_rank"),
    "backend": ("backend",),
    "bucket_mb": ("bucket_size_mb", "bucket_cap_mb", "bucket_mb", "bucket_size_in_mb", "max_bucket_size_mb"),
    "bucket_bytes": ("bucket_size_bytes", "bucket_bytes", "bucket_cap_bytes", "bucket_size_in_bytes", "bucket_cap", "max_bucket_bytes"),
    "bucket": ("bucket_size", "max_bucket_size", "bucket_numel", "bucket_elements"),
}
MEANING_OF = {name: meaning for meaning, names in MEANINGS.items() for name in names}
MODULE_NAMES = ("module", "model", "net", "network", "nn_module", "wrapped_module", "inner")
PARAMETER_NAMES = ("params", "parameters", "param_list", "model_parameters", "trainable_params")

OWN_ADAPTER = '''
A class of your own, of ten lines, that has the shape:

    class Adapter(torch.nn.Module):                 # --subject my_adapter:Adapter --as ddp
        def __init__(self, module):
            super().__init__()
            self.module = module
            self.mine = MyDataParallel(module, 25)  # yours, with what it needs

        def forward(self, *inputs):
            return self.mine(*inputs)

        def finish_gradient_synchronization(self):  # after backward; leave it out if nothing is to be called
            self.mine.reduce()
'''


class Mismatch(Unsupported):
    """What was expected, what was found, and the way out."""

    def __init__(self, name, need, have, help_text=OWN_ADAPTER):
        super().__init__(f"{name}: {have}\nneed {need}\n{help_text.strip()}")


@dataclasses.dataclass
class Shape:
    """How a subject is used, and what it says of itself."""

    form: str = ""  # wrapper, companion, factory, installer, function, sync_bn, sampler, absent
    words: str = ""  # The adapter, for people.
    finish: str = ""  # Called after backward.
    start: str = ""  # Called before a step.
    own_backward: bool = False  # backward(loss), in the place of loss.backward().
    own_zero_grad: bool = False
    sync_switch: str = ""  # "no_sync()", "require_backward_grad_sync", "set_requires_gradient_sync"
    defined_at: str = ""
    function: str = ""
    contract: dict = dataclasses.field(default_factory=dict)
    offers: dict = dataclasses.field(default_factory=dict)  # Feature: where it says so.
    lacks: dict = dataclasses.field(default_factory=dict)  # Feature: why it is taken as absent.
    fixed: dict = dataclasses.field(default_factory=dict)  # Arguments that are always given.


def public_methods(cls):
    """Its own, name and function; those of nn.Module are everybody's."""
    for name in dir(cls):
        value = inspect.getattr_static(cls, name, None)
        inherited = getattr(nn.Module, name, None) if issubclass(cls, nn.Module) else None
        if not name.startswith("_") and inspect.isfunction(value) and value is not inherited:
            yield name, value


def can_be_called_alone(function):
    return len(required(signature_of(function))) <= 1  # self


def is_finish(name, function):
    """A parameter of it is filled as those of constructors are."""
    needed = required(signature_of(function))[1:]
    return not inspect.isgeneratorfunction(getattr(function, "__wrapped__", function)) and all(p.name in MEANING_OF for p in needed)


def reduces_gradients(cls, function, depth=3):
    """Whether its code, or that of methods that it calls, sends gradients."""
    code = code_of(source_of(function))
    for name in set(re.findall(r"\bself\.(\w+)\(", code)) if depth else ():
        other = inspect.getattr_static(cls, name, None)
        if inspect.isfunction(other) and not other.__module__.startswith("torch.") and reduces_gradients(cls, other, depth - 1):
            return True
    return bool(CALLS_OF_GRADIENTS.search(code) and SENDS.search(code))


def finish_of(cls, source):
    """The method that a loop calls after backward: found by the meaning of its name, or else by what it does, never one that the
    class calls itself."""
    if any(re.search("manual(?!_?seed)", name) for name in dir(cls)):  # Where it is by choice, it is not chosen.
        return ""
    others = [(n, f) for n, f in public_methods(cls) if is_finish(n, f) and not re.search(rf"\bself\.{n}\b", source)]
    found = [n for n, _ in others if ENDS.search(n) and OF_GRADIENTS.search(n) and not NOT_OF_GRADIENTS.search(n)]
    ending = [name for name in found if FIRST.search(name)]
    if not found and not HOOKED.search(source):
        found = [n for n, f in others if not OF_A_LOOP.search(n) and not f.__module__.startswith("torch.") and reduces_gradients(cls, f)]
    return (ending or found or [""])[0]


def uncalled(cls, source):
    """A method that sends gradients, called by nobody as far as is known."""
    for name, function in public_methods(cls):
        called = name in ("forward", "backward") or re.search(rf"\bself\.{name}\b", source)
        if not called and not function.__module__.startswith("torch.") and reduces_gradients(cls, function):
            return f"{name}({', '.join(list(signature_of(function))[1:])})"
    return ""


def begins_a_step(function):
    """reset() may as well set the values that there were at first."""
    code = code_of(source_of(function))
    return function.__name__ != "reset" or bool(OF_A_STEP.search(code.split("\n", 1)[-1]) and not SETS_VALUES.search(code))


def broadcasts_when_made(thing):
    """Of parameters, not of buffers alone, nor of gradients; or its docstring says so."""
    return bool(SAYS_IT_BROADCASTS.search(thing.__doc__ or "")) or any(BROADCASTS.search(code) and OF_VALUES.search(code) for code in reached_from(thing))


def switch_of(cls, source):
    for name in ("no_sync", "no_gradient_sync", "no_grad_sync"):
        if can_be_called_alone(getattr(cls, name, lambda a, b: None)):
            return name + "()"
    for name in ("require_backward_grad_sync", "require_grad_sync", "enable_grad_sync"):
        if re.search(rf"self\.{name}\b", source):
            return name
    for name in ("set_requires_gradient_sync", "set_gradient_sync", "set_require_backward_grad_sync"):
        if callable(getattr(cls, name, None)):
            return name
    return ""


def is_given(cls, parameters, source, *names):
    for name in names:
        if name in parameters:
            return f"parameter {name}"
    for name in names:
        if re.search(rf"\b(self\.)?{name}\b", source):
            return f"attribute {name}"
    return ""


def has_parameters(cls, method, *names):
    return set(names) <= set(signature_of(getattr(cls, method, None)))


def features_of_wrapper(cls, shape, parameters, source):
    """What a wrapper declares: by its parameters and attributes, else it is taken as absent."""
    # Not in the source alone: that a word stands somewhere says little.
    declared = {
        "no_sync": shape.sync_switch,
        "broadcast_buffers": is_given(cls, parameters, "", "broadcast_buffers"),
        "forward_sync_buffers": is_given(cls, parameters, "", "forward_sync_buffers"),
        "find_unused_parameters": is_given(cls, parameters, "", "find_unused_parameters"),
        "static_graph": is_given(cls, parameters, "", "static_graph"),
        "gradient_as_bucket_view": is_given(cls, parameters, "", "gradient_as_bucket_view"),
        "join": "join()" if has_parameters(cls, "join", "divide_by_initial_world_size") else "",
        "join_disabled": "join(enable=...)" if has_parameters(cls, "join", "enable") else "",
        "comm_hook": "register_comm_hook()" if has_parameters(cls, "register_comm_hook", "state", "hook") else "",
        "ignored": is_given(cls, {}, source, "parameters_to_ignore", "_ddp_params_and_buffers_to_ignore"),
        "buffer_holes": is_given(cls, {}, source, "require_forward_param_sync"),
        # What is called after backward begins nothing.
        "initial": "making it broadcasts" if shape.form != "function" and broadcasts_when_made(cls) else "",
    }
    missing = {
        "no_sync": "no no_sync() or require_backward_grad_sync: accumulation without synchronisation is not declared",
        "broadcast_buffers": "no parameter broadcast_buffers: whose buffers a forward begins with is not declared",
        "forward_sync_buffers": "no parameter forward_sync_buffers",
        "find_unused_parameters": "no parameter find_unused_parameters: parameters that a rank does not use are not declared",
        "static_graph": "no parameter static_graph",
        "gradient_as_bucket_view": "no parameter gradient_as_bucket_view",
        "join": "no join(divide_by_initial_world_size=...): ranks with different numbers of batches are not declared",
        "join_disabled": "no join(enable=...)",
        "comm_hook": "no register_comm_hook(): how a bucket is reduced is its own",
        "ignored": "no way to ignore parameters is declared",
        # Who compares them has it raised where one differs; that no other rank is left waiting is a promise of its own.
        "refuses_differing": "that every rank refuses modules that differ, and names the parameter, is not declared",
        "buffer_holes": "a forward whose buffers are not synchronised is not declared",
        "initial": f"making {shape.defined_at or cls.__name__} broadcasts no parameters, as far as its source tells: equal values at the start "
                   "are the caller's",
    }
    if NARROWED.search(source):
        shape.lacks["float64"] = "its source makes float32 of tensors"
    for feature, why in missing.items():
        if declared.get(feature):
            shape.offers[feature] = declared[feature]
        else:
            shape.lacks[feature] = why


def of_annotation(parameter):
    """What annotates it, made, where that is a class that needs nothing: settings, as many hand them over. Else None."""
    kind = parameter.annotation
    if not inspect.isclass(kind) or not inspect.isfunction(vars(kind).get("__init__")) or required(signature_of(kind)):
        return None
    return kind()


def bound_names(name, thing, parameters, skip_first=True):
    """Every parameter without a default must mean something; else a mismatch that names it."""
    unknown = []
    for i, parameter in enumerate(required(parameters)):
        if (skip_first and i == 0) or parameter.name in MEANING_OF or parameter.name in MODULE_NAMES + PARAMETER_NAMES:
            continue
        if of_annotation(parameter) is not None:
            continue
        unknown.append(parameter.name)
    if unknown:
        listed = ", ".join(parameters)
        raise Mismatch(
            name,
            "a module (or its parameters) first; then only what has a default, or means rank, world size, group, device or bucket size",
            f"{thing.__name__}({listed}) at {place_of(thing)} needs {', '.join(unknown)}, which no adapter knows",
        )


def find_use(shape, cls, source):
    """What a loop calls of an object of this class."""
    shape.finish = finish_of(cls, source)
    shape.sync_switch = switch_of(cls, source)
    shape.own_backward = any(n == "backward" and len(required(signature_of(f))) == 2 for n, f in public_methods(cls))  # self, loss
    shape.own_zero_grad = any(n == "zero_grad" and can_be_called_alone(f) for n, f in public_methods(cls))
    shape.start = next((n for n, f in public_methods(cls) if STARTS.search(n) and can_be_called_alone(f)
                        and not re.search(rf"\bself\.{n}\b", source) and begins_a_step(f)), "")


def of_class(name, cls):
    parameters, source = signature_of(cls), whole_code(cls)
    shape = Shape(defined_at=place_of(cls), function=cls.__name__)
    if not any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values()):
        raise Mismatch(name, "a class that is given a module", f"{cls.__name__}() at {shape.defined_at} is given nothing")
    bound_names(name, cls, parameters)
    find_use(shape, cls, source)
    runs = issubclass(cls, nn.Module) or callable(getattr(cls, "forward", None)) or "__call__" in vars(cls)
    if issubclass(cls, nn.Module) and cls.forward is nn.Module.forward:
        raise Mismatch(name, "forward()", f"{cls.__name__} at {shape.defined_at} is a module without a forward")
    if not runs and not shape.finish and not HOOKED.search(source):
        raise Mismatch(
            name,
            "forward(), or a method to be called after backward (finish_gradient_synchronization, sync_gradients, average_gradients, ...)",
            f"{cls.__name__} at {shape.defined_at} has {', '.join(n for n, _ in public_methods(cls)) or 'no public method'}",
        )
    unknown = "" if shape.finish or HOOKED.search(source) else uncalled(cls, source)
    if unknown:
        raise Mismatch(
            name, "a method to be called after backward that needs nothing, or what means rank, world size or group",
            f"{cls.__name__} at {shape.defined_at} sends gradients in {unknown}, and no adapter knows when and with what it is called",
        )
    if re.search(r"reduce_scatter|\bdist\.reduce\(", source) and any(n == "step" for n, _ in public_methods(cls)):
        raise Mismatch(
            name, "an implementation that leaves the mean gradient on every rank",
            f"{cls.__name__} at {shape.defined_at} reduces to parts and steps by itself: sharded gradients are not judged",
        )
    shape.form = "wrapper" if runs else "companion"
    called = "module wrapper" if runs else "object beside the module"
    after = f", {shape.finish}() after backward" if shape.finish else ", nothing to call after backward"
    if shape.own_backward:
        called += " with backward(loss)"
    shape.words = called + after + (f", {shape.start}() before a step" if shape.start else "")
    shape.contract = {"gradient": "mean_of_rank_means"}
    features_of_wrapper(cls, shape, parameters, source)
    return shape


def of_function(name, function):
    parameters, source = signature_of(function), code_of(source_of(function))
    shape = Shape(defined_at=place_of(function), function=function.__name__, contract={"gradient": "mean_of_rank_means"})
    bound_names(name, function, parameters)
    if next(iter(parameters), "") in OPTIMIZER_NAMES:
        raise Mismatch(name, "a module (or its parameters) first", f"{function.__name__}({', '.join(parameters)}) at {shape.defined_at} is "
                       "given an optimizer")
    if not parameters:
        raise Mismatch(name, "a function of a module or of its parameters", f"{function.__name__}() at {shape.defined_at} takes nothing")
    called = function.__name__
    of_gradients = bool(re.search(r"grad", called)) or bool(CALLS_OF_GRADIENTS.search(source) and not HOOKED.search(source))
    if INSTALLS.search(called) or HOOKED.search(source):
        shape.form, shape.words = "installer", "function that hooks itself to the module"
    elif of_gradients:
        shape.form, shape.words = "function", "function of the gradients, called after backward"
        shape.sync_switch = "called only when gradients are to be synchronised"
    elif WRAPS.search(called):
        shape.form, shape.words = "factory", "function that wraps a module"
    else:
        raise Mismatch(
            name,
            "a function that averages gradients after backward, hooks itself to a module, or wraps one: its name or its source says so",
            f"{called} at {shape.defined_at} names neither gradients nor hooks",
        )
    features_of_wrapper(function, shape, parameters, source)
    return shape


def ddp_shape(name, thing):
    if not (inspect.isclass(thing) or inspect.isfunction(thing) or inspect.ismethod(thing)):
        raise Mismatch(name, "a class or a function", f"it is {type(thing).__name__}")
    shape = of_class(name, thing) if inspect.isclass(thing) else of_function(name, thing)
    shape.contract["reduces_at"] = first_call(thing, REDUCES)
    return shape
