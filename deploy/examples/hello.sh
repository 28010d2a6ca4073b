#!/bin/sh
# Any program can be a worker:
#   trainctl launch --nproc-per-node 3 deploy/examples/hello.sh
echo "rank $RANK of $WORLD_SIZE, epoch $TRAINCTL_EPOCH, rendezvous at $MASTER_ADDR:$MASTER_PORT"
