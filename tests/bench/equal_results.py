#!/usr/bin/python3
"""The same result for 1, 2 and 4 workers, for every run, and after kill -9 of any worker.

Formulas: largest |loss_a - loss_b| / |loss_b| over the first 50 steps, worlds 2 and 4 against 1;
bit-identity: the loss files are equal byte for byte; kill: the digest of the final parameters, as the
job's last note gives it, equals the undisturbed run's, for kills spread over the steps of the job.
"""

import argparse
import json
import os
import random
import re
import signal
import sys
import threading
import time

import workbench as wb

TEXT = wb.EXAMPLES / "text" / "harbour.txt"
TRAIN = {
    "mlp": {"model": {"kind": "mlp", "hidden": [128, 64], "dropout": 0.1},
            "data": {"kind": "fashion_mnist", "path": "/usr/share/datasets/fashion-mnist"},
            "batch": {"global": 64, "micro": 16}},
    "gpt": {"model": {"kind": "gpt", "layers": 2, "width": 64, "heads": 2, "context": 64, "dropout": 0.1},
            "data": {"kind": "text", "path": str(TEXT)},
            "batch": {"global": 16, "micro": 4}},
}
OPTIMIZER = {"kind": "adamw", "lr": 1e-3, "weight_decay": 0.01, "clip": 1.0,
             "schedule": {"warmup": 10, "decay": "cosine"}}


def training(model, steps):
    return {**TRAIN[model], "optimizer": OPTIMIZER, "steps": steps, "seed": 1}


def losses(model, workers, steps):
    """The loss file of a run of the worker program, byte for byte."""
    with wb.scratch() as folder:
        (folder / "config.json").write_text(json.dumps(training(model, steps)))
        wb.run_job(folder, "--nproc-per-node", workers, wb.BIN / "train-worker", "--config",
                   folder / "config.json", "--loss-file", folder / "losses")
        return (folder / "losses").read_bytes()


def largest_difference(a, b):
    values = [[float(line.split(b",")[1]) for line in text.splitlines()] for text in (a, b)]
    return max(abs(x - y) / abs(y) for x, y in zip(*values, strict=True))


def job_file(folder, model, steps):
    job = {"name": f"kill-{model}", "nodes": {"workers": 2}, "train": training(model, steps),
           "checkpoint": {"dir": str(folder / "checkpoints"), "every": "20 steps"},
           "restart": {"max": 3, "window": "10 in 1h"}}
    (folder / "job.yaml").write_text(json.dumps(job))
    return folder / "job.yaml"


def final_digest(text):
    found = re.findall(r"parameters (xxh3-128:[0-9a-f]{32})", text)
    if not found:
        raise RuntimeError(f"the job told no digest of its parameters:\n{text[-2000:]}")
    return found[-1]


def worker_pids():
    """Pids of our running worker programs, by rank."""
    found = {}
    for entry in wb.pathlib.Path("/proc").iterdir():
        try:
            if entry.joinpath("exe").resolve() == (wb.BIN / "train-worker").resolve():
                words = entry.joinpath("environ").read_bytes().split(b"\0")
                rank = next(w for w in words if w.startswith(b"RANK="))
                found[int(rank.split(b"=")[1])] = int(entry.name)
        except (OSError, StopIteration, ValueError):
            continue
    return found


def undisturbed(model, steps):
    """(seconds the workers lived, digest)."""
    with wb.scratch() as folder:
        begin = time.monotonic()
        _, text = wb.run_job(folder, job_file(folder, model, steps))
        return time.monotonic() - begin, final_digest(text)


def killed(model, steps, rank, delay):
    """(restarts, digest) of a run one of whose workers is killed `delay` after they all live."""
    with wb.scratch() as folder:
        def kill():
            try:
                pids = wb.wait_for(lambda: len(worker_pids()) == 2 and worker_pids(), 30, "two workers")
                time.sleep(delay)
                os.kill(pids[rank], signal.SIGKILL)
            except (RuntimeError, ProcessLookupError, KeyError):
                pass  # the job was over before

        killer = threading.Thread(target=kill)
        killer.start()
        report, text = wb.run_job(folder, job_file(folder, model, steps))
        killer.join()
        return report["restarts"], final_digest(text)


def measure(models, steps, kills, seed):
    wb.need(wb.BIN / "trainctl", wb.BIN / "train-worker", TEXT)
    if worker_pids():
        raise wb.Refused(f"other workers of this build run: {worker_pids()}")
    table = wb.Table()
    chance = random.Random(seed)
    for model in models:
        alone = losses(model, 1, 50)
        for workers in (2, 4):
            again = losses(model, workers, 50)
            difference = largest_difference(again, alone)
            table.add(f"{model}, loss of 50 steps, world {workers} against 1", f"{difference:.1e}",
                      must="<= 1e-5", holds=difference <= 1e-5)
            same = again == losses(model, workers, 50)
            table.add(f"{model}, two runs of world {workers}", "identical" if same else "different",
                      must="bit-identical", holds=same)
        seconds, digest = undisturbed(model, steps)
        equal, restarted = 0, 0
        for i in range(kills):
            delay = seconds * (i + chance.random()) / kills
            restarts, other = killed(model, steps, chance.randrange(2), delay)
            restarted += restarts > 0
            equal += other == digest
        table.add(f"{model}, final parameters after kill -9", f"{equal} of {kills} runs identical "
                  f"({restarted} restarted)", must="bit-identical", holds=equal == kills and restarted > 0)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=list(TRAIN), action="append", help="may be given twice; default both")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sys.exit(wb.main(lambda: measure(args.model or list(TRAIN), args.steps, args.kills, args.seed)))
