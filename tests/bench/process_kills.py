#!/usr/bin/python3
"""kill -9 of the coordinator, a daemon or the front end at random moments, while two nodes train.

Formulas: kills survived = kills after which both workers were the processes they were before; longest pause =
most time between two steps that rank 0 had finished, as its page shows it, read every 2 ms, with kills and (of the
same job) without; the final parameters equal those of a run that nobody disturbed, digest by digest. A killed
daemon is started again at once, as systemd would, and a killed front end by `trainctl resume`.
"""

import argparse
import json
import os
import random
import re
import struct
import subprocess
import sys
import threading
import time

import workbench as wb
from cluster_latency import Daemons, pids_of
from equal_results import worker_pids

JOB = {
    "name": "endures",
    "nodes": {"workers": 1},
    "train": {
        "model": {"kind": "mlp", "hidden": [64, 32], "dropout": 0.1},
        "data": {"kind": "fashion_mnist", "path": "/usr/share/datasets/fashion-mnist"},
        "optimizer": {"kind": "adamw", "lr": 1e-3},
        "batch": {"global": 64, "micro": 32}, "seed": 1,
    },
    "checkpoint": {"every": "500 steps"},
    "restart": {"max": 0},
}
STEP_OFFSET = 8  # runtime/local/page.h


class Steps(threading.Thread):
    """Watches how far a worker is, through the page that it writes."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        words = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
        self.page = open(next(w[len(b"TRAINCTL_PAGE="):] for w in words if w.startswith(b"TRAINCTL_PAGE=")), "rb")
        self.pid = pid
        self.longest_s = 0.0
        self.step = 0
        self.over = threading.Event()

    def read(self):
        return struct.unpack("<Q", os.pread(self.page.fileno(), 8, STEP_OFFSET))[0]

    def run(self):
        since = None
        while not self.over.wait(0.002) and os.path.exists(f"/proc/{self.pid}"):
            step, now = self.read(), time.monotonic()
            if step != self.step:
                # The first step waits for the others, and before the end the result is saved.
                self.longest_s = max(self.longest_s, now - since) if since is not None else 0.0
                self.step, since = step, now


class Run:
    def __init__(self, folder, steps):
        self.folder = folder
        self.watch = None
        self.daemons = Daemons(folder, 2)
        job = {**JOB, "train": {**JOB["train"], "steps": steps},
               "checkpoint": {**JOB["checkpoint"], "dir": str(folder / "checkpoints")}}
        (folder / "job.yaml").write_text(json.dumps(job))
        self.front_end = wb.launch(
            folder, "--daemon", self.daemons.socket(0), "--daemon-port", self.daemons.port, "--key", self.daemons.key,
            "--nodes", "127.0.1.[1-2]", "--orphan-timeout", "10m", folder / "job.yaml", env=self.daemons.env)

    def await_steps(self):
        self.pids = wb.wait_for(lambda: len(worker_pids()) == 2 and worker_pids(), 30, "two workers")
        self.watch = Steps(self.pids[0])
        self.watch.start()
        wb.wait_for(lambda: self.watch.step > 0, 30, "the first step")

    def kill(self, what, index):
        if what == "front end":
            self.front_end.kill()
            self.front_end.wait()
            log = open(self.folder / "launch.log", "ab")
            self.front_end = subprocess.Popen(
                [wb.BIN / "trainctl", "resume", "--daemon", self.daemons.socket(0), "endures"], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, env=self.daemons.env)
        elif what == "daemon":
            self.daemons.processes[index].kill()
            self.daemons.start_again(index)
        else:
            for pid in wb.wait_for(lambda: pids_of("d0", "train-coordinator"), 30, "a coordinator"):
                os.kill(pid, 9)

    def text(self):
        return (self.folder / "launch.log").read_text(errors="replace")

    def digest(self):
        status = self.front_end.wait(600)
        found = re.findall(r"parameters (xxh3-128:[0-9a-f]{32})", self.text())
        if status != 0 or not found:
            raise RuntimeError(f"the job ended with status {status}:\n{self.text()[-3000:]}")
        return found[-1]

    def end(self):
        if self.watch is not None:
            self.watch.over.set()
        wb.end(self.front_end)
        self.daemons.end()


def measure(args):
    wb.need(wb.BIN / "trainctl", wb.BIN / "train-worker")
    if worker_pids():
        raise wb.Refused(f"other workers of this build run: {worker_pids()}")
    chance = random.Random(args.seed)
    with wb.scratch() as folder:
        run = Run(folder, args.steps)
        try:
            run.await_steps()
            expected, usual_s = run.digest(), run.watch.longest_s
        finally:
            run.end()
    with wb.scratch() as folder:
        run = Run(folder, args.steps)
        survived = 0
        try:
            run.await_steps()
            for i in range(args.kills):
                time.sleep(chance.uniform(0.0, args.pause))
                what, index = chance.choice(["coordinator", "daemon", "front end"]), chance.randrange(2)
                step = run.watch.step
                if step >= args.steps:
                    raise wb.Refused(f"the job was over after {i} kills: give more --steps than {args.steps}")
                run.kill(what, index)
                wb.wait_for(lambda: run.watch.step > step, 20, f"a step after kill {i + 1} ({what})")
                survived += worker_pids() == run.pids
            print(f"  {args.kills} kills were made by step {run.watch.step} of {args.steps}", flush=True)
            digest = run.digest()
        finally:
            run.end()
    table = wb.Table()
    table.add(f"kills that both workers outlived, of {args.kills}", survived, "", "", "all", survived == args.kills)
    table.add("longest pause between two steps (undisturbed)",
              f"{run.watch.longest_s * 1e3:.0f} ms ({usual_s * 1e3:.0f} ms)")
    table.add("parameters as of the undisturbed run", digest == expected, "", "", "yes", digest == expected)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--pause", type=float, default=0.5, help="most seconds before the next kill")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.exit(wb.main(lambda: measure(arguments)))
