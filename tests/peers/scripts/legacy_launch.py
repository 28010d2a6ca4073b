"""A script of the old python -m torch.distributed.launch: the local rank is an argument."""

import argparse

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, required=True)
parser.add_argument("--lr", type=float, default=0)
args = parser.parse_args()
dist.init_process_group("gloo", init_method="env://")
total = torch.tensor([args.local_rank + 1.0])
dist.all_reduce(total)
print(f"local rank {args.local_rank} lr {args.lr} sum {total.item():.0f}", flush=True)
