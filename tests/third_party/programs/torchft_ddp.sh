#!/bin/sh
# The lighthouse of torchft and two replicas, each under a torchrun of its own: torchft_ddp.sh, in this folder.
port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
torchft_lighthouse --min_replicas 2 --join_timeout_ms 10000 --bind "127.0.0.1:$port" 2>/dev/null &
lighthouse=$!
export RUST_LOG=error  # Its log is written piece by piece, and the pieces of two replicas mix.
export TORCHFT_LIGHTHOUSE="http://127.0.0.1:$port"
REPLICA_GROUP_ID=0 python -m torch.distributed.run --standalone --nproc-per-node=1 torchft_ddp.py &
first=$!
REPLICA_GROUP_ID=1 python -m torch.distributed.run --standalone --nproc-per-node=1 torchft_ddp.py
status=$?
wait "$first" || status=$?
kill "$lighthouse"
wait "$lighthouse"
exit "$status"
