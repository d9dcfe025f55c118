"""PyTorch's own DistributedSampler. Reads lines "length world epoch seed drop_last shuffle", all integers; writes one
line per rank of each: the indices, separated by spaces. Exit status 77: what is missing is on stderr."""

import sys

try:
    from torch.utils.data import DistributedSampler
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(77)

for line in sys.stdin:
    length, world, epoch, seed, drop_last, shuffle = map(int, line.split())
    for rank in range(world):
        sampler = DistributedSampler(range(length), world, rank, bool(shuffle), seed, bool(drop_last))
        sampler.set_epoch(epoch)
        print(*sampler)
