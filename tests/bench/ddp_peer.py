#!/usr/bin/python3
"""PyTorch DDP's side of training_throughput: the same models as model_peer, plain torch.distributed.

Rank 0 prints one line of JSON: samples per second after the warm-up, and which BLAS was loaded.
"""

import argparse
import gzip
import json
import time

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from model_peer import Gpt, Mlp

FASHION = "/usr/share/datasets/fashion-mnist/train-"


def images():
    """Normalised once before training: ours does it for every batch."""
    with gzip.open(FASHION + "images-idx3-ubyte.gz") as file:
        pixels = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 784)
    with gzip.open(FASHION + "labels-idx1-ubyte.gz") as file:
        labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8)
    features = (torch.from_numpy(pixels.copy()).float() / 255 - 0.2860) / 0.3530
    return features, torch.from_numpy(labels.copy()).long()


def windows(path, context):
    with open(path, "rb") as file:
        tokens = torch.from_numpy(numpy.frombuffer(file.read(), numpy.uint8).copy()).long()
    count = (len(tokens) - 1) // context
    return (tokens[:count * context].view(count, context), tokens[1:count * context + 1].view(count, context))


def shares(samples, batch, rank, world):
    """Endless shuffled batches of this rank, each sample once in each pass over the data."""
    generator = torch.Generator().manual_seed(1)
    while True:
        order = torch.randperm(samples, generator=generator)
        for begin in range(0, samples - batch * world + 1, batch * world):
            yield order[begin + rank * batch:begin + (rank + 1) * batch]


def without_buffers(model):
    """The buffers are constants, and DDP over Gloo cannot send those that are of bool."""
    for module in list(model.modules()):
        for name, value in list(module.named_buffers(recurse=False)):
            delattr(module, name)
            setattr(module, name, value)
    return model


def blas():
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if "blas" in line})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", required=True, help="the job file of ours, as JSON")
    parser.add_argument("--warmup", type=int, default=20)
    args = parser.parse_args()
    with open(args.job) as file:
        train = json.load(file)["train"]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    shape = train["model"]
    if shape["kind"] == "mlp":
        x, y = images()
        model = Mlp(784, shape["hidden"], 10)
    else:
        x, y = windows(train["data"]["path"], shape["context"])
        model = Gpt(shape["layers"], shape["width"], shape["heads"], shape["context"], 256, 0.0)
    model = DistributedDataParallel(without_buffers(model), gradient_as_bucket_view=True)
    wanted = train["optimizer"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=wanted["lr"], weight_decay=wanted["weight_decay"],
                                  foreach=True)
    batch = train["batch"]["global"] // world
    batches = shares(len(x), batch, rank, world)
    for step in range(train["steps"]):
        if step == args.warmup:
            dist.barrier()
            begin = time.monotonic()
        ids = next(batches)
        logits = model(x[ids])
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), y[ids].view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    dist.barrier()
    rate = (train["steps"] - args.warmup) * batch * world / (time.monotonic() - begin)
    if rank == 0:
        print(json.dumps({"samples_per_second": rate, "loss": loss.item(), "blas": blas()}), flush=True)


if __name__ == "__main__":
    main()
