#!/usr/bin/python3
"""PyTorch counterpart of model_bench: the same models, eager, one process, one thread.

Prints the model's name and samples per second of processor time, the best of several windows.
"""

import argparse
import math
import time

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        sizes = [inputs, *hidden]
        layers = []
        for a, b in zip(sizes, sizes[1:]):
            layers += [nn.Linear(a, b), nn.ReLU(inplace=True)]
        self.net = nn.Sequential(*layers, nn.Linear(sizes[-1], classes))

    def forward(self, x):
        return self.net(x)


class Block(nn.Module):
    def __init__(self, width, heads, context, dropout):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)
        mask = torch.triu(torch.ones(context, context, dtype=torch.bool), diagonal=1)
        self.register_buffer("mask", mask)

    def attention(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)
        q = q.view(n, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(n, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(n, t, self.heads, c // self.heads).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(c // self.heads))
        scores = scores.masked_fill(self.mask, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return self.project(y.transpose(1, 2).contiguous().view(n, t, c))

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        h = F.gelu(self.expand(self.norm2(x)), approximate="tanh")
        return x + self.dropout(self.contract(h))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, context, vocabulary, dropout):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, context, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("positions", torch.arange(context))

    def forward(self, tokens):
        x = self.dropout(self.token(tokens) + self.position(self.positions))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight)


def measure(model, inputs, targets, args):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, foreach=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = model(inputs)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(3):
        step()
    best = float("inf")
    for _ in range(args.windows):
        steps = 0
        start = time.process_time()
        while time.process_time() - start < args.seconds:
            step()
            steps += 1
        best = min(best, (time.process_time() - start) / steps)
    return inputs.size(0) / best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["mlp", "gpt"], required=True)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--hidden", default="512,256")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--windows", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if args.model == "mlp":
        batch = args.batch or 128
        model = Mlp(784, [int(h) for h in args.hidden.split(",")], 10)
        inputs, targets = torch.rand(batch, 784), torch.randint(10, (batch,))
    else:
        batch = args.batch or 8
        model = Gpt(args.layers, args.width, args.heads, args.context, args.vocabulary, args.dropout)
        tokens = torch.randint(args.vocabulary, (batch, args.context + 1))
        inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    print(f"{args.model} {measure(model, inputs, targets, args):.1f} samples/s")


if __name__ == "__main__":
    main()
