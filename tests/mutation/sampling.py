"""Which mutants of all: evenly over operators, and within an operator evenly over files."""

import collections
import random


def by_turns(queues):
    """One of each queue in turn, until all are empty."""
    queues = [queue for queue in queues if queue]
    while queues:
        for queue in queues:
            yield queue.popleft()
        queues = [queue for queue in queues if queue]


def in_drawn_order(mutants, seed):
    draw = random.Random(seed)
    operators = collections.defaultdict(lambda: collections.defaultdict(collections.deque))
    for mutant in draw.sample(mutants, len(mutants)):
        operators[mutant.operator][mutant.file].append(mutant)
    queues = []
    for _, files in sorted(operators.items()):
        queues.append(collections.deque(by_turns([files[file] for file in draw.sample(sorted(files), len(files))])))
    return list(by_turns(queues))
