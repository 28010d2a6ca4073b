"""A plain PyTorch DDP script: nothing in it knows of trainctl.

    trainctl launch --nproc-per-node 2 --max-restarts 3 ddp.py --checkpoint /tmp/ddp.pt

It fits a small network to synthetic data, saves after every 20 steps and goes on from its file when
it is started again.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def batch_of(step, rank, size, inputs):
    """The batch is a function of step and rank, so that a resumed run sees the same data."""
    generator = torch.Generator().manual_seed(1_000_003 * step + rank)
    x = torch.randn(size, inputs, generator=generator)
    return x, torch.sin(x.sum(dim=1, keepdim=True))


def save(path, step, model, optimizer):
    state = {"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--checkpoint", help="file to save to and to go on from")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    start = 0
    if args.checkpoint and os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint)
        start = state["step"]
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if rank == 0:
            print(f"going on from step {start}")

    for step in range(start + 1, args.steps + 1):
        x, y = batch_of(step, rank, args.batch, 16)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}")
                if args.checkpoint:
                    save(args.checkpoint, step, model, optimizer)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
