"""The message `epoch`: what a sampler gives to one rank in one epoch of a dataset."""

import datetime
import inspect
import itertools
import re

import torch
import torch.distributed as dist
from torch.utils.data import Dataset, SequentialSampler

from . import shapes, sources
from .lines import Unsupported
from .spoiled import Spoiler
from .tensors import TensorSet, read_tensors

DATA_NAMES = ("dataset", "data_source", "data", "ds", "source", "samples")
COUNT_NAMES = ("num_samples", "length", "n", "size", "dataset_size", "dataset_len", "dataset_length", "total", "total_size", "data_len",
               "sample_count", "num_items", "n_samples", "len_dataset", "total_samples")
LENGTH_NAMES = ("lengths", "sizes", "seq_lengths", "item_lengths", "lens", "sequence_lengths", "seq_lens", "sample_lengths")
BATCH_NAMES = ("batch_size", "samples_per_batch", "bs", "per_device_batch_size", "micro_batch_size")
BOUNDARY_NAMES = ("boundaries", "bucket_boundaries", "buckets", "bucket_edges")
BUCKET_COUNT_NAMES = ("num_buckets", "n_buckets", "bucket_count")
TOKEN_NAMES = ("max_tokens", "max_tokens_per_batch", "tokens_per_batch", "batch_max_tokens", "max_batch_tokens", "token_limit", "max_frames")
START_NAMES = ("consumed_samples", "start_index", "start_iter", "start_sample")
REPEAT_NAMES = ("num_repeats", "repeats", "n_repeats", "repetitions", "num_aug_repeats")
OF_DATA = DATA_NAMES + COUNT_NAMES + LENGTH_NAMES + ("sampler", "base_sampler", "weights", "sample_weights")
OPTION_NAMES = ("shuffle", "drop_last", "seed") + BATCH_NAMES
REPLACES = re.compile(r"\bmultinomial\(|replacement\s*=\s*True|replace\s*=\s*True|random\.choices\(")
KNOWN = OF_DATA + OPTION_NAMES + BOUNDARY_NAMES + BUCKET_COUNT_NAMES + TOKEN_NAMES + START_NAMES + ("epoch", "generator")
BATCH_SIZE = 4
BOUNDARIES = (9, 20, 30, 40, 50)  # Whether the first is in its bucket or below it: items have 10 to 50.
BUCKETS = 5
TOKENS = 200

SHAPE_HELP = '''
A class of your own, of ten lines, that has the shape:

    class Adapter:                                   # --subject my_adapter:Adapter --as sampler
        def __init__(self, dataset, num_replicas, rank, shuffle=True, seed=0, drop_last=False):
            self.mine = MySampler(len(dataset), rank, num_replicas, seed)   # yours, with what it needs
        def set_epoch(self, epoch):
            self.mine.epoch = epoch
        def __iter__(self):
            return iter(self.mine)                   # indices, or lists of indices
        def __len__(self):
            return len(self.mine)
'''


class Items(Dataset):
    """A dataset of which only the lengths of its items matter. What else was asked of it is remembered."""

    def __init__(self, lengths):
        self.lengths, self.lacks = list(lengths), []

    def __getattr__(self, name):
        if not name.startswith("__"):
            self.lacks.append(name)
        raise AttributeError(f"lockstep's dataset has no {name}")

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.zeros(self.lengths[index])


def sampler_shape(name, thing):
    parameters = sources.signature_of(thing)
    place = sources.place_of(thing)
    if not inspect.isclass(thing) or not callable(getattr(thing, "__iter__", None)):
        raise shapes.Mismatch(name, "a class with __iter__", f"{getattr(thing, '__name__', thing)} at {place} has none", SHAPE_HELP)
    unknown = [p.name for p in sources.required(parameters) if p.name not in KNOWN and p.name not in shapes.MEANING_OF]
    need = "a dataset, its length or the lengths of its items; else num_replicas, rank, shuffle, seed, drop_last, batch_size, max_tokens"
    called = f"{thing.__name__}({', '.join(parameters)}) at {place}"
    if unknown or not any(n in OF_DATA for n in parameters):
        what = ", ".join(unknown or parameters) or "nothing"
        raise shapes.Mismatch(name, need, f"{called} is given {what}, which no adapter knows", SHAPE_HELP)
    source = sources.whole_code(thing)
    meanings = {shapes.MEANING_OF.get(n) for n in parameters}
    if "world" in meanings and not meanings & {"rank", "group"} and not re.search("rank", source, re.IGNORECASE):
        raise shapes.Mismatch(name, "a parameter that says which one it is (rank)", f"{called} is given how many there are alone", SHAPE_HELP)
    lacking = lacks_of_dataset(thing)
    if lacking:
        raise shapes.Mismatch(name, "a sampler of any dataset", f"{called} asks its dataset for {', '.join(lacking)}", SHAPE_HELP)
    batches = "lists of indices" if any(n in parameters for n in BATCH_NAMES) else "indices"
    epochs = "set_epoch()" if callable(getattr(thing, "set_epoch", None)) else "no set_epoch()"
    at = {"gives_at": sources.last_given(thing, "__iter__"), "length_at": sources.last_given(thing, "__len__"),
          "orders_at": sources.first_call(thing, sources.SEEDS, sources.SHUFFLES)}
    shape = shapes.Shape(form="sampler", contract=at, words=f"sampler class, {batches} expected, {epochs}", defined_at=place, function=thing.__name__)
    declared = {
        "drop_last": "drop_last" in parameters,
        "shuffle": "shuffle" in parameters,
        "seed": "seed" in parameters,
        "set_epoch": callable(getattr(thing, "set_epoch", None)),
        "sharded": any(shapes.MEANING_OF.get(n) in ("rank", "world", "group") for n in parameters) or "get_rank" in source,
    }
    for feature, there in declared.items():
        if there:
            shape.offers[feature] = "declared"
        else:
            shape.lacks[feature] = f"{thing.__name__} has no {feature}"
    return shape


def lacks_of_dataset(thing):
    """What its constructor asks of a dataset that not every dataset has, and does not go without."""
    items = Items(some_lengths(123))
    try:
        next(iter(Loader(thing, items, {}, 0, 2, 1).sampler), None)
    except Exception:  # What else is wrong is told when it is used.
        return list(dict.fromkeys(items.lacks))
    return []


def is_list(one):
    return isinstance(one, (list, tuple)) or (isinstance(one, torch.Tensor) and one.dim() > 0)


class Loader:
    """A sampler as a program keeps it over the epochs of one dataset."""

    def __init__(self, thing, items, options, rank, world, seed, boundaries=BOUNDARIES):
        self.items, self.streams, self.yields_lists = items, [], None
        positional, named, parameters = [], {}, sources.signature_of(thing)
        data_is_needed = any(p.name in OF_DATA for p in sources.required(parameters))
        values = {"shuffle": options.get("shuffle", True), "drop_last": options.get("drop_last", False), "seed": seed, "epoch": 0}
        values.update(dict.fromkeys(DATA_NAMES, items), **dict.fromkeys(COUNT_NAMES, len(items)))
        values.update(dict.fromkeys(LENGTH_NAMES, items.lengths), **dict.fromkeys(BATCH_NAMES, BATCH_SIZE))
        values.update(dict.fromkeys(BOUNDARY_NAMES, list(boundaries)), **dict.fromkeys(BUCKET_COUNT_NAMES, BUCKETS))
        values.update(dict.fromkeys(("sampler", "base_sampler"), SequentialSampler(items)), **dict.fromkeys(TOKEN_NAMES, TOKENS))
        values.update(dict.fromkeys(("weights", "sample_weights"), [1.0] * len(items)), **dict.fromkeys(START_NAMES, 0))
        for i, (name, parameter) in enumerate(parameters.items()):
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            meaning = shapes.MEANING_OF.get(name)
            needed = parameter.default is parameter.empty
            if i == 0 and name in OF_DATA and parameter.kind is not parameter.KEYWORD_ONLY:
                positional.append(values[name])
            elif meaning in ("rank", "world"):
                named[name] = rank if meaning == "rank" else world
            elif name in OPTION_NAMES or (name in values and (needed or name in OF_DATA and not data_is_needed)):
                if name != "drop_last" or needed or options.get("drop_last", False):
                    named[name] = values[name]
            elif needed:
                named[name] = dist.group.WORLD if meaning == "group" else None
        self.sampler = thing(*positional, **named)

    def epoch(self, number, most):
        """Batches of one epoch, at most so many, and whether it came to its end."""
        if callable(getattr(self.sampler, "set_epoch", None)):
            self.sampler.set_epoch(number)
        batches, loose = [], []
        for one in self.begun():
            self.yields_lists = is_list(one)
            if self.yields_lists:
                batches.append([int(index) for index in one])
            else:
                loose.append(int(one))
                if len(loose) == BATCH_SIZE:
                    batches.append(loose)
                    loose = []
            if len(batches) >= most:
                return batches, False
        self.streams.clear()
        if loose:
            batches.append(loose)
        return batches, True

    def begun(self):
        """Its items from where an epoch begins. A stream that is begun but once goes on, and is never closed: whoever makes
        one keeps it for as long as it trains."""
        fresh = iter(self.sampler)
        try:
            first = next(fresh)
        except StopIteration:
            return self.streams[-1] if self.streams else ()
        self.streams.append(itertools.chain([first], fresh))
        return self.streams[-1]

    def promised(self):
        """Batches that its length promises; None where it has none."""
        try:
            length = len(self.sampler)
        except TypeError:
            return None
        return length if self.yields_lists else -(-length // BATCH_SIZE)


class Epochs:
    def __init__(self, subject):
        self.subject, self.loaders, self.looks = subject, {}, {}

    def join(self, request):
        if dist.is_initialized() or "rendezvous" not in request:
            return
        dist.init_process_group(
            "gloo", init_method="file://" + request["rendezvous"], rank=request["rank"], world_size=request["world"],
            timeout=datetime.timedelta(minutes=2),
        )

    def epoch(self, request):
        self.join(request)
        part = self.subject.part(request["sampler"])
        options, rank, world = request.get("options", {}), request["rank"], request["world"]
        data = read_tensors(request["dataset"])
        lengths = data["dataset/item_lengths"].tolist() if "dataset/item_lengths" in data else [1] * int(data["dataset/length"])
        boundaries = data["dataset/boundaries"].tolist() if "dataset/boundaries" in data else BOUNDARIES
        most = int(data["dataset/batches_max"])
        contract = self.contract(part, options, rank, world)
        spoiler = Spoiler(options, rank, world)
        if request["dataset"] not in self.loaders:
            self.loaders[request["dataset"]] = Loader(
                part.thing, Items(lengths), options, rank if dist.is_initialized() else spoiler.share(), world, request["seed"], boundaries)
        loader = self.loaders[request["dataset"]]
        batches = spoiler.batches(loader.epoch(spoiler.epoch(request["epoch"]), most)[0])
        tensors = TensorSet()
        tensors.add("sampler/indices", torch.tensor([i for batch in batches for i in batch], dtype=torch.int64))
        tensors.add("sampler/batch_sizes", torch.tensor([len(batch) for batch in batches], dtype=torch.int64))
        promised = loader.promised() if request["epoch"] == 0 else None
        if promised is not None:
            tensors.add("sampler/length", torch.tensor([promised]))
        tensors.write(request["out"])
        return {"contract": contract}

    def contract(self, part, options, rank, world):
        """What the parameters declare; what becomes of a remainder, which few say, is what all ranks do with one."""
        shape = part.shape
        contract = {"draws": "once", "length": "finite", "batches": sizes_of(part.thing), "subject": part.name, "adapter": shape.words,
                    "defined_at": shape.defined_at}
        key = str(sorted(options.items()))
        if key not in self.looks:
            self.looks[key] = self.look(part, options, rank, world)
        draws, remainder, shuffles = self.looks[key]
        if options.get("shuffle", True) and "set_epoch" in shape.offers and shuffles:
            contract["order"] = "shuffled"
        elif options.get("shuffle", True) is False:
            contract["order"] = "sequential"
        contract.update(draws)
        contract["remainder"] = remainder
        if contract["remainder"] == "endless":
            contract.update(length="infinite", remainder="keep")
        elif options.get("drop_last", False) and contract["remainder"] in ("keep", "pad"):
            contract["remainder"] = "drop"
        if contract["remainder"] == "batches":
            contract["draws"] = ""
        elif contract["remainder"].endswith(" batches"):
            contract.update(remainder=contract["remainder"].split()[0], unit="batches")
        contract.update(shape.contract)
        return contract

    def look(self, part, options, rank, world):
        """How it draws, what becomes of a remainder, of several lengths, and whether the order is another than that of the
        dataset."""
        draws, remainders, gaps, shuffles = draws_of(part.thing), set(), [], False
        for count in lengths_to_look_at(world):
            items = Items(some_lengths(count))
            batches, ended = Loader(part.thing, items, options, rank, world, 1).epoch(0, 2 * count)
            if not ended:
                return draws, "endless", True
            given = [batches]
            if dist.is_initialized():
                given = [None] * world
                dist.all_gather_object(given, batches)
            shares = [[index for batch in batches for index in batch] for batches in given]
            remainder = remainder_of(shares, count, world, int(draws.get("repeats", 1)))
            gaps.append((count, *gaps_of(shares, count)))
            # Batches of as many items as there is room for: how many each rank has of them is nobody's promise.
            roomy = any(len(batch) > BATCH_SIZE for batches in given for batch in batches)
            remainders.add("" if roomy and remainder.startswith("keep") else remainder)
            shuffles = shuffles or any(not nearly_ascends(share) for share in shares)
        remainder = remainders.pop() if len(remainders) == 1 else "batches"
        if remainder == "batches" and not draws and knows_samples_alone(part.thing) and follow_no_rule(gaps, world):
            remainder = "pad" if any(repeated for _, repeated, _ in gaps) else "drop"
        return draws, remainder, shuffles


def lengths_to_look_at(world):
    """Some of which none is whole batches, and each has another remainder by samples than by batches; what one has by chance,
    such as buckets that are filled up by as many as all samples would be, some other has not."""
    all_batches = world * BATCH_SIZE
    fitting = [n for n in range(61 * world, 200 * world) if n % world and n % BATCH_SIZE and n % world != n % all_batches
               and -n % world != -n % all_batches]
    picked = []
    for least in (61, 75, 97, 120, 149):
        others = (n for n in fitting if n >= least * world and (not picked or n % all_batches != picked[-1] % all_batches))
        picked.extend(itertools.islice(others, 1))
    return picked or [61 * world + 1]


def some_lengths(count):
    """Of items, 10 to 50, in no order and of no regular numbers: whole batches of some are chance."""
    return [10 + i * 7919 % 1009 % 41 for i in range(count)]


def nearly_ascends(share):
    """But for where it begins anew to fill up."""
    falls = sum(b < a for a, b in zip(share, share[1:]))
    return falls <= max(1, len(share) // 10)


def sizes_of(thing):
    """What its parameters say of the sizes of its batches: as many items as there is room for, or some of each length left over."""
    parameters = set(sources.signature_of(thing))
    if parameters & set(TOKEN_NAMES):
        return "own"
    return "partial" if parameters & set(LENGTH_NAMES + BOUNDARY_NAMES + BUCKET_COUNT_NAMES) else "any"


def draws_of(thing):
    """What its parameters say: with replacement, or each sample several times. What its source says of replacement is no promise
    of what it gives."""
    parameters = sources.signature_of(thing)
    if "replacement" in parameters and parameters["replacement"].default is not False:
        return {"draws": "with_replacement"}
    for name in REPEAT_NAMES:
        if name in parameters and isinstance(parameters[name].default, int):
            return {"draws": "repeated", "repeats": str(parameters[name].default)}
    if REPLACES.search(sources.whole_code(thing)):
        return {"draws": ""}
    return {}


def gaps_of(shares, count):
    """How many samples are given again, and how many to nobody."""
    given = [index for share in shares for index in share]
    return len(given) - len(set(given)), count - len(set(given))


def knows_samples_alone(thing):
    """It is given nothing that a rule for batches, lengths or parts of the data could go by."""
    known = DATA_NAMES + COUNT_NAMES + ("shuffle", "seed", "drop_last", "generator", "epoch")
    return all(name in known or name in shapes.MEANING_OF for name in sources.signature_of(thing))


def follow_no_rule(gaps, world):
    """A few samples too much or too little, and filled up or left out to no multiple of anything."""
    def to(unit):
        return all((repeated, missed) in ((-count % unit, 0), (0, count % unit)) for count, repeated, missed in gaps)
    few = all(max(repeated, missed) <= 4 * world for _, repeated, missed in gaps)
    return few and not any(to(unit) for unit in range(world, 200 * world, world))


def remainder_of(shares, count, world, repeats=1):
    """keep, pad, drop, each of samples or of whole batches; "batches" alone: they are filled up or left out by a rule that no
    word of the contract has."""
    given = [index for share in shares for index in share]
    if not given:
        return "batches"
    repeated, missed = gaps_of(shares, count)
    if repeats > 1:  # Which of the repeats were left out or added does not show; how many there are does.
        more = len(given) - count * repeats
        return "keep" if more == 0 else "pad" if more == -count * repeats % world else "drop" if more < 0 else "batches"
    sizes = [len(share) for share in shares]
    equal = min(sizes) == max(sizes)
    if repeated == 0 and missed == 0:
        return "keep batches" if 1 < max(sizes) - min(sizes) <= BATCH_SIZE else "keep"
    for unit, what in ((world, ""), (world * BATCH_SIZE, " batches")):
        if missed == 0 and equal and repeated == -count % unit:
            return "pad" + what
        if repeated == 0 and equal and missed == count % unit:
            return "drop" + what
    if (repeated == 0 or missed == 0) and repeated + missed <= world * BATCH_SIZE * BUCKETS and repeated + missed < count / 2:
        return "batches"
    return "keep"


def check_options(options):
    for name in options:
        if not re.fullmatch(r"\w+", name):
            raise Unsupported(f"no sampler has an option {name}")
