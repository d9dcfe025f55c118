"""What loops receive of a DataLoader: the second part of the script of the watch (watch.py), in the same namespace, with

    around(original, then)   a method that calls the original and then then(first argument, result, ended)
    digest(tensor)           of its bytes; 0 where it cannot be read
    epoch(...)               writes down a loop over a loader that has ended or was left

A loader's iterator is asked for nothing: its attributes are read, and those of its sampler.
"""

ENDED, INDEXED, TRAINED, SHARES, SHUFFLES, DROPS_LAST = 1, 2, 4, 8, 16, 32  # As watch_format.h has them.
LOOKED_AT = 4  # Batches of an epoch.
EPOCHS = 512  # That are written down.
ABOVE = (1 << 63) - 1

SUBSET_LOOKED_AT = 1024  # Indices of a Subset.
SHARE_LOOKED_AT = 32  # Samples of a share: who of the ranks received them.

iterators = weakref.WeakKeyDictionary()
# By sampler: of the share that it dealt out last the first samples, by place, whose it is, from 1, and what ordered it.
shares = weakref.WeakKeyDictionary()
loaders = {}  # By the identity of its sampler: a reference to that, its number among those of its kind, its epochs.
kinds = {}  # How many loaders there were of each kind. Which identities are used again is each rank's own matter.
written = [0]


def deals_out(sampler):
    """As torch's own: others that declare shares may give less of them by design, or an order by choice."""
    torchs = sys.modules.get("torch.utils.data.distributed")
    return torchs is not None and getattr(type(sampler), "__iter__", None) is torchs.DistributedSampler.__iter__


def subset_of(sampler):
    """A digest of the indices of the Subset that it deals out; 0 where it deals out something else."""
    dataset, subsets = attributes_of(sampler).get("dataset"), sys.modules.get("torch.utils.data.dataset")
    if subsets is None or type(dataset) is not subsets.Subset:
        return 0
    indices = attributes_of(dataset).get("indices")
    if type(indices) not in (list, tuple, range) or not indices:
        return 0
    some = tuple(indices[::max(1, len(indices) // SUBSET_LOOKED_AT)])
    return hash((len(indices), some)) & ABOVE if all(type(index) is int for index in some) else 0


def loader_of(sampler, kind):
    known = loaders.get(id(sampler))
    if known is None or known[0]() is not sampler:
        try:
            reference = weakref.ref(sampler)
        except TypeError:  # A list, for instance: it is another loader each time.
            reference = lambda: None  # noqa: E731
        kinds[kind] = kinds.get(kind, 0) + 1
        known = loaders[id(sampler)] = [reference, kinds[kind], 0]
    return known


def samplers_of(sampler):
    """Those that it is put around, too."""
    for _ in range(6):
        yield sampler
        attributes = attributes_of(sampler)
        sampler = attributes.get("sampler")
        if sampler is None:  # Whether it is true is a question to it.
            sampler = attributes.get("batch_sampler")
        if sampler is None:
            return


def place_of_loop():
    """The nearest line that is of the program, and of no library."""
    frame = sys._getframe(1)
    for _ in range(40):
        if frame is None:
            return ""
        file = frame.f_code.co_filename
        if not file.startswith("<") and "/site-packages/" not in file and "/lib/python" not in file:
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def tensors_of(batch, depth=0):
    if is_plain(batch):
        yield batch
    elif depth < 4 and type(batch) in (list, tuple):
        for item in batch:
            yield from tensors_of(item, depth + 1)
    elif depth < 4 and type(batch) is dict:
        for item in batch.values():
            yield from tensors_of(item, depth + 1)


class Loop:
    """One pass over a loader."""

    def __init__(self, sampler):
        self.received = self.batches = self.order = 0
        self.indexed = True
        self.digests = []
        self.stepped = stepped[0]
        self.place = place_of_loop()
        self.flags = self.replicas = self.share = self.taken = 0
        self.share_of = self.seed = self.subset = 0
        self.head = {}  # Of the share: what was not received so far, by place.
        self.sampler = type(sampler).__name__
        for each in samplers_of(sampler):
            attributes = attributes_of(each)
            if attributes.get("drop_last") is True:
                self.flags |= DROPS_LAST
            replicas, share = attributes.get("num_replicas"), attributes.get("num_samples")
            if type(replicas) is int and type(share) is int and deals_out(each):
                self.flags |= SHARES | (SHUFFLES if attributes.get("shuffle") is True else 0)
                self.replicas, self.share, self.sampler = replicas, share, type(each).__name__
                head, self.share_of, self.seed = shares.get(each, ({}, 0, 0))
                self.head = dict(head)
                self.subset = subset_of(each)
        known = loader_of(sampler, (self.sampler, self.replicas, self.place))
        known[2] += 1
        self.loader, self.number = known[1:]

    def add(self, batch, indices):
        self.batches += 1
        if len(self.digests) < LOOKED_AT:
            self.digests.append(hash(tuple(digest(tensor) for tensor in tensors_of(batch))) & ABOVE)
        if type(indices) is int:
            indices = (indices,)
        if type(indices) not in (list, tuple) or any(type(index) is not int for index in indices):
            self.indexed = False
            return
        self.received += len(indices)
        self.order = hash((self.order, tuple(indices)))
        for index in indices if self.head else ():
            if (place := self.head.pop(index, None)) is not None:
                self.taken |= 1 << place

    def close(self, ended):
        if written[0] >= EPOCHS:
            return
        written[0] += 1
        flags = self.flags | (ENDED if ended else 0) | (INDEXED if self.indexed else 0)
        flags |= TRAINED if stepped[0] != self.stepped else 0
        epoch(self.loader, self.number, flags, self.received, self.batches, self.order & ABOVE, self.replicas, self.share,
              self.digests, self.taken, self.share_of, self.seed, self.subset, f"{self.sampler}\n{self.place}")


class Iterator:
    def __init__(self):
        self.drawn = []  # Indices of batches that were not yielded so far.
        self.loop = None
        self.astray = False  # What was drawn is not what comes next.
        self.empty = False  # It ended before it gave anything.


def iterator_of(iterator):
    state = iterators.get(iterator)
    if state is None:
        state = iterators[iterator] = Iterator()
    return state


def drawn(iterator, indices, ended):
    try:
        if not ended:
            iterator_of(iterator).drawn.append(indices)
    except Exception as error:
        tell_unseen(f"a loader: {type(error).__name__}: {error}")


def received(iterator, batch, ended):
    try:
        state, attributes = iterator_of(iterator), vars(iterator)
        if ended:
            if state.loop is None and attributes["_num_yielded"] == 0 and not state.empty:
                state.loop, state.empty = Loop(attributes["_index_sampler"]), True
            if state.loop is not None:
                state.loop.close(True)
            state.loop, state.drawn = None, []
            return
        if attributes["_num_yielded"] == 1 or state.loop is None:
            if state.loop is not None:
                state.loop.close(False)
                state.astray = len(state.drawn) != 1
            state.loop = Loop(attributes["_index_sampler"])
        in_order = attributes.get("_in_order", True) and not state.astray
        state.loop.add(batch, state.drawn.pop(0) if in_order and state.drawn else None)
    except Exception as error:
        tell_unseen(f"a loader: {type(error).__name__}: {error}")


def dealt(sampler, share, ended):
    """torch's own gives an iterator over a list, and that tells its list without being moved."""
    try:
        if not ended and deals_out(sampler):
            _, (samples,), *_ = share.__reduce__()
            head = {index: place for place, index in enumerate(samples[:SHARE_LOOKED_AT])}
            attributes = attributes_of(sampler)
            rank, *order = (attributes.get(name) for name in ("rank", "seed", "epoch"))
            known = all(type(value) is int for value in (rank, *order))
            shares[sampler] = (head, rank + 1, sum(order) % (1 << 32)) if known and rank >= 0 else (head, 0, 0)
    except Exception as error:
        tell_unseen(f"a sampler: {type(error).__name__}: {error}")


def watch_loaders(iterator_class):
    methods = vars(iterator_class)
    iterator_class._next_index = around(methods["_next_index"], drawn)
    iterator_class.__next__ = around(methods["__next__"], received)
    if torchs := sys.modules.get("torch.utils.data.distributed"):
        torchs.DistributedSampler.__iter__ = around(vars(torchs.DistributedSampler)["__iter__"], dealt)


if "torch.utils.data.dataloader" in sys.modules:
    watch_loaders(sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter)
