"""The part of `lockstep run --watch` that runs in the interpreter of a rank.

It is no module: the tap (harness/tap/watch.cc) executes it once, with loaders.py behind it, in a namespace of its own,
with these functions in it:

    arrive(group)            counts a step; collectives issued on the group so far
    tensor(...), point(...)  write down a tensor of a replica, and the values at one step
    unseen(text)             writes down what is not watched, and why
    expect(group, whether)   whether what is handed to its reductions is written down until the next step
    now()                    nanoseconds
    filled()                 of the room that there is for records
    tell(...)                what the watching takes
    BUDGET                   of the time of the program

What runs here runs in the program's own threads. It changes nothing, raises nothing, calls no operator of torch, asks
no tensor for anything, and returns None.
"""

import sys
import weakref

OFTEN = 16  # The first steps: 1, 2, 4, 8, 16.
IGNORED, BUFFER, LOOSE, AT_START, LATE = 2, 4, 8, 16, 32  # As watch_format.h has them.
HOOKED, ALONE = 64, 128
AFTER_BROADCAST = (1 << 32) - 1
WORLD = 0  # The first group of the process.

replicas = []  # In the order in which they were made.
optimizers = weakref.WeakKeyDictionary()
told = set()
stepped = [0]  # Calls of step().
counted = [0]  # Optimizers.


def tell_unseen(text):
    if text not in told and len(told) < 64:
        told.add(text)
        unseen(text)


def tensors_in(module, kind, prefix="", seen=None):
    """Names and tensors ("_parameters" or "_buffers"), each once, without asking the module: its methods may be the
    program's."""
    seen = set() if seen is None else seen
    attributes = vars(module)
    for name, held in attributes.get(kind, {}).items():
        if held is not None and id(held) not in seen:
            seen.add(id(held))
            yield prefix + name, held
    for name, child in attributes.get("_modules", {}).items():
        if child is not None and id(child) not in seen:
            seen.add(id(child))
            yield from tensors_in(child, kind, prefix + name + ".", seen)


def attributes_of(thing):
    return getattr(type(thing), "__dictoffset__", 0) and vars(thing) or {}


def is_plain(value):
    """Not a DTensor or another class with ideas of its own."""
    return type(value) is torch.Tensor or type(value) is torch.nn.Parameter


class Replica:
    """A module that DistributedDataParallel was put around."""

    def __init__(self, ddp, group, site):  # No site: it was not seen when it was made.
        self.wrapper = weakref.ref(ddp)
        self.group = group
        self.number = sum(other.group == group for other in replicas)
        self.site = site
        self.sent = 0  # Forwards after which its buffers were looked at.
        self.ids = {}
        start = AT_START | (0 if site else LATE)
        for name, parameter in self.tensors("_parameters"):
            self.define(name, parameter, start)
        if vars(ddp).get("forward_sync_buffers", vars(ddp).get("broadcast_buffers")) is True:
            for name, buffer in self.tensors("_buffers"):
                self.define(name, buffer, start | BUFFER)

    def tensors(self, kind):
        wrapper = self.wrapper()
        return () if wrapper is None else tensors_in(vars(wrapper)["_modules"]["module"], kind)

    def define(self, name, held, flags=0):
        if not is_plain(held):
            tell_unseen(f"parameters that are of class {type(held).__name__}")
            self.ids[name] = None
            return
        if name in (vars(self.wrapper()).get("parameters_to_ignore") or ()):
            flags |= IGNORED
        self.ids[name] = tensor(self.group, self.number, self.site, name, held, flags)

    def buffers(self):
        """As points have them: the program may have put others in their places."""
        flags = HOOKED if "buffer_hook" in attributes_of(self.wrapper()) else 0
        for name, buffer in self.tensors("_buffers"):
            if name not in self.ids:
                self.define(name, buffer, BUFFER)
            if self.ids[name] is not None and is_plain(buffer):
                yield self.ids[name], flags, buffer, []

    def ids_of_parameters(self):
        """As the module is now: parameters come and go."""
        found = {}
        attributes = attributes_of(self.wrapper())
        flags = HOOKED if attributes.get("_comm_hooks") else 0
        flags |= ALONE if attributes.get("require_forward_param_sync") is False else 0
        for name, parameter in self.tensors("_parameters"):
            if name not in self.ids:
                self.define(name, parameter)
            if self.ids[name] is not None and is_plain(parameter):
                found[id(parameter)] = self.ids[name], flags
        return found


class Loose:
    """The parameters of an optimizer, where DistributedDataParallel has none of them."""

    def __init__(self, optimizer, number):
        self.prefix = f"{type(optimizer).__name__} {number}, parameter "
        self.number = (1 << 16) + number
        self.ids = {}

    def ids_of_parameters(self, optimizer):
        found = {}
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        for i, parameter in enumerate(parameters):
            if not is_plain(parameter):
                tell_unseen(f"parameters that are of class {type(parameter).__name__}")
                continue
            if i not in self.ids:
                self.ids[i] = tensor(WORLD, self.number, 0, self.prefix + str(i), parameter, LOOSE)
            if self.ids[i] is not None:
                found[id(parameter)] = self.ids[i], 0
        return found


class Steps:
    """The steps of one optimizer, and which of them are watched.

    Which ones follows from how many collectives were issued on the group, which is the same on all members between two
    of them: whoever was given another interval still watches what all watch, since intervals are powers of two.
    """

    def __init__(self):
        if "torchdata.stateful_dataloader" in sys.modules:
            tell_unseen("loops over torchdata's StatefulDataLoader")
        self.number = counted[0]  # Those that are gone have had theirs.
        counted[0] += 1
        self.group = None
        self.loose = None
        self.known = -1  # Replicas, when they were looked for.
        self.own, self.own_of = [], None
        self.steps = self.moves = self.watched = 0
        self.position = self.ordinal = 0
        self.shift = 0
        self.begun = self.spent = self.first_position = 0
        self.steady = None

    def look_for_group(self, optimizer):
        self.known = len(replicas)
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for replica in replicas:
            if not mine.isdisjoint(replica.ids_of_parameters()):
                self.group, self.loose = replica.group, None
                return
        if self.group is None:
            self.group, self.loose = WORLD, Loose(optimizer, self.number)

    def own_replicas(self, optimizer):
        """Of which it steps parameters: looked for anew where there are more replicas, or other numbers of parameters."""
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        of = len(replicas), len(mine)
        if self.own_of != of:
            self.own = [each for each in replicas
                        if each.group == self.group and not mine.isdisjoint(each.ids_of_parameters())]
            self.own_of = of
        return self.own

    def is_due(self):
        position = arrive(self.group)
        self.steps += 1
        if position == self.position:
            self.ordinal += 1
            return self.ordinal & (self.ordinal + 1) == 0
        crossed = position >> self.shift != self.position >> self.shift
        self.position, self.ordinal = position, 0
        self.moves += 1
        return self.moves & (self.moves - 1) == 0 if self.moves <= OFTEN else crossed

    def next_is_due(self):
        """Whether the next step of those that are watched often is: what is handed in before it is looked at, too."""
        return self.moves < OFTEN and self.moves & (self.moves + 1) == 0

    def took(self, begun, ended):
        """Chooses the interval so that what is watched takes its share of the time and of the room."""
        cost = ended - begun
        self.watched += 1
        if self.moves <= OFTEN:
            if self.moves == 1:
                self.begun, self.first_position = ended, self.position
            else:
                self.spent += cost
            if self.moves == OFTEN:
                self.steady = ended
                self.steady_cost = 0
        else:
            self.steady_cost += cost
        if self.moves >= OFTEN:
            own = max(1, ended - self.begun - self.spent - (self.steady_cost or 0))
            per_collective = own / max(1, self.position - self.first_position)
            wanted = cost / (BUDGET * per_collective)
            room = 1 / max(1e-3, 1 - filled())
            self.shift = max(0, min(40, (int(wanted * room)).bit_length()))
        tell(cost, self.steady or 0, ended if self.steady else 0, 1 << self.shift)


def settings_of(group):
    plain = (int, float, bool, str, type(None), tuple)
    return ";".join(f"{name}={value!r}" for name, value in group.items() if name != "params" and type(value) in plain)


def look(optimizer, steps):
    begun = now()
    ids = {} if steps.loose is None else steps.loose.ids_of_parameters(optimizer)
    own = steps.own_replicas(optimizer) if steps.loose is None else []
    for replica in own:
        ids.update(replica.ids_of_parameters())
    groups = []
    for group in optimizer.param_groups:
        rate = group.get("lr")
        entries = []
        for parameter in group["params"]:
            if id(parameter) in ids:
                state = optimizer.state.get(parameter)
                state = [value for value in state.values() if is_plain(value)] if type(state) is dict else []
                entries.append((*ids[id(parameter)], parameter, state))
        groups.append((settings_of(group), float(rate) if type(rate) in (int, float) else float("nan"), entries))
    if steps.moves <= OFTEN:  # Of buffers nobody is told but once.
        groups += [("", float("nan"), list(replica.buffers())) for replica in own]
    point(steps.group, steps.number, steps.position, steps.ordinal, steps.steps, groups)
    steps.took(begun, now())


def watch_step(optimizer):
    stepped[0] += 1
    try:
        steps = optimizers.get(optimizer)
        if steps is None:
            steps = Steps()
            optimizers[optimizer] = steps
        if (steps.group is None or steps.loose is not None) and steps.known != len(replicas):
            steps.look_for_group(optimizer)
        if steps.is_due():
            look(optimizer, steps)
        if steps.moves <= OFTEN:
            on_group = [other for other in optimizers.values() if other.group == steps.group]
            expect(steps.group, any(other.next_is_due() for other in on_group))
    except Exception as error:
        tell_unseen(f"a step: {type(error).__name__}: {error}")


def made(ddp, group, site):
    try:
        if all(replica.wrapper() is not ddp for replica in replicas):
            replicas.append(Replica(ddp, group, site))
    except Exception as error:
        tell_unseen(f"a DistributedDataParallel: {type(error).__name__}: {error}")


def sent(ddp, group, position):
    """Its buffers were sent to all a moment ago."""
    try:
        for replica in replicas:
            if replica.wrapper() is ddp:
                replica.sent += 1
                groups = [("", float("nan"), list(replica.buffers()))]
                point(group, AFTER_BROADCAST, position, 0, replica.sent, groups)
    except Exception as error:
        tell_unseen(f"the buffers of a DistributedDataParallel: {type(error).__name__}: {error}")


torch = sys.modules["torch"]
__builtins__ = vars(sys.modules["builtins"])  # Dynamo looks for it where it follows a function.


# Where a step is compiled Dynamo follows what the hooks do: it finds nothing here, and no global that it would guard.
def before_step(optimizer, args, kwargs, *, is_compiling=torch.compiler.is_compiling, watch_step=watch_step):
    if not is_compiling():
        watch_step(optimizer)


# Under a key that no handle of the program's has: a handle of ours would count as one of them.
sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks["lockstep"] = before_step
