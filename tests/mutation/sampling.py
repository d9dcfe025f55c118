"""Which mutants of all: evenly over operators, and within an operator evenly over files. What is drawn of a file does not
depend on the others, nor on where in it a mutant stands: an edit elsewhere leaves the rest of the sample as it is."""

import collections
import hashlib


def by_turns(queues):
    """One of each queue in turn, until all are empty."""
    queues = [queue for queue in queues if queue]
    while queues:
        for queue in queues:
            yield queue.popleft()
        queues = [queue for queue in queues if queue]


def in_drawn_order(mutants, seed):
    def drawn(*words):
        return hashlib.sha256("\n".join((str(seed), *words)).encode()).digest()

    operators = collections.defaultdict(lambda: collections.defaultdict(collections.deque))
    for mutant in sorted(mutants, key=lambda mutant: drawn(mutant.identity())):
        operators[mutant.operator][mutant.file].append(mutant)
    queues = [collections.deque(by_turns([files[file] for file in sorted(files, key=lambda file: drawn(operator, file))]))
              for operator, files in sorted(operators.items())]
    return list(by_turns(queues))
