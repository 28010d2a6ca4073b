#!/usr/bin/python3
"""Random faults of daemons, workers and links on three machines (network namespaces), for as long as is asked.

One job after the other trains on all three, disturbed every few seconds: SIGKILL of a worker, of a shim's keeper or
supervisor, of a daemon or of the coordinator; a daemon stopped for a while, which a shim ends if it is too long; a link
cut for a while, shorter or longer than the lease. A daemon that was killed is started again at once, as systemd would. Each job must end by itself, with the parameters of an
undisturbed run.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import workbench as wb
from cluster_latency import Daemons, pids_of
from equal_results import worker_pids

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cluster"))
import namespaces  # noqa: E402

NODES = 3
LEASE_S = 3
PATIENCE_S = 900


def job(folder, steps):
    return {
        "name": "faults",
        "nodes": {"workers": 1},
        "train": {
            "model": {"kind": "mlp", "hidden": [64, 32], "dropout": 0.1},
            "data": {"kind": "fashion_mnist", "path": "/usr/share/datasets/fashion-mnist"},
            "optimizer": {"kind": "adamw", "lr": 1e-3}, "batch": {"global": 96, "micro": 32}, "seed": 1, "steps": steps},
        "checkpoint": {"dir": str(folder / "checkpoints"), "every": "50 steps"},
        "restart": {"max": 100000, "window": "100000 in 1h"},
    }


class Machines(Daemons):
    def __init__(self, folder, network):
        self.network = network
        super().__init__(folder, NODES)

    def address(self, index):
        return self.network.address(index)

    def inside(self, index):
        return self.network.inside(index)

    def launch(self, path):
        log = open(self.folder / "launch.log", "ab")
        nodes = ",".join(self.address(i) for i in range(NODES))
        return subprocess.Popen(
            [*self.inside(0), wb.BIN / "trainctl", "launch", "--daemon", self.socket(0), "--daemon-port", str(self.port),
             "--key", self.key, "--nodes", nodes, "--lease", f"{LEASE_S}s", path],
            env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def kill(pids, signo=signal.SIGKILL):
    for pid in pids:
        try:
            os.kill(pid, signo)
        except ProcessLookupError:
            pass


def wait(machines, seconds):
    """Meanwhile daemons that were killed are started again, as systemd would."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for index, process in enumerate(machines.processes):
            if process.poll() == -signal.SIGKILL:
                machines.start_again(index)
        time.sleep(0.1)


def disturb(machines, chance):
    """Does one thing and undoes what does not mend itself; returns what it was."""
    index = chance.randrange(NODES)
    what = chance.choice(["worker", "shim", "daemon", "coordinator", "stopped daemon", "link"])
    seconds = chance.uniform(0.2, 3 * LEASE_S)
    if what == "worker":
        kill([pid for rank, pid in worker_pids().items() if rank == index])
    elif what == "shim":
        shims = pids_of(f"d{index}", "train-shim")
        kill(chance.sample(shims, min(1, len(shims))))
    elif what == "daemon":
        machines.processes[index].kill()
    elif what == "coordinator":
        kill(pids_of("d0", "train-coordinator"))
    elif what == "stopped daemon":
        machines.processes[index].send_signal(signal.SIGSTOP)
        stopped = machines.processes[index]
        wait(machines, seconds)
        stopped.send_signal(signal.SIGCONT)
    else:
        machines.network.link(index, "down")
        wait(machines, seconds)
        machines.network.link(index, "up")
    return what


def keep(folder, place):
    """What explains a run that went wrong: the logs of launch, daemons and coordinator."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for path in [*folder.glob("*.log"), *folder.glob("state/trainctl/jobs/*/coordinator.log")]:
        shutil.copy(path, place / path.name)
    print(f"logs are kept in {place}", flush=True)


def digest_of(text):
    found = re.findall(r"parameters (xxh3-128:[0-9a-f]{32})", text)
    return found[-1] if found else None


def undisturbed(machines, folder, steps):
    """The digest of a run of the same shape: with other threads in a worker, its products round otherwise."""
    place = folder / "undisturbed"
    place.mkdir()
    (place / "job.yaml").write_text(json.dumps(job(place, steps)))
    machines.launch(place / "job.yaml").wait(PATIENCE_S)
    return digest_of((folder / "launch.log").read_text(errors="replace"))


def run_jobs(folder, args):
    """(jobs that ended as the undisturbed one, jobs begun, faults by kind)"""
    chance = random.Random(args.seed)
    faults = {}
    good = begun = 0
    network = namespaces.Network(NODES)
    machines = Machines(folder, network)
    try:
        expected = undisturbed(machines, folder, args.steps)
        end = time.monotonic() + 60 * args.minutes
        while time.monotonic() < end:
            place = folder / f"job{begun}"
            place.mkdir()
            (place / "job.yaml").write_text(json.dumps(job(place, args.steps)))
            (folder / "launch.log").write_text("")
            begun += 1
            front_end = machines.launch(place / "job.yaml")
            give_up = time.monotonic() + PATIENCE_S
            while front_end.poll() is None and time.monotonic() < give_up:
                wait(machines, chance.uniform(1, args.pause))
                if front_end.poll() is None and time.monotonic() < end:
                    what = disturb(machines, chance)
                    faults[what] = faults.get(what, 0) + 1
            wait(machines, 0.2)
            text = (folder / "launch.log").read_text(errors="replace")
            as_expected = front_end.poll() == 0 and digest_of(text) == expected
            good += as_expected
            print(f"  job {begun}: {'as undisturbed' if as_expected else 'NOT as undisturbed'}, status "
                  f"{front_end.poll()}, faults so far {faults}", flush=True)
            if not as_expected:
                print(text[-3000:])
                for index, process in enumerate(machines.processes):
                    if process.poll() is not None:
                        print(f"daemon {index} has ended by itself: {process.poll()}")
                keep(folder, folder.parent / "fault_run")
                wb.end(front_end)
                break
    finally:
        machines.end()
        network.remove()
    return good, begun, faults


def measure(args):
    wb.need(wb.BIN / "trainctl", wb.BIN / "train-worker")
    if worker_pids():
        raise wb.Refused(f"other workers of this build run: {worker_pids()}")
    reason = namespaces.why_not()
    if reason is not None:
        raise wb.Refused(reason)
    with wb.scratch() as folder:
        good, begun, faults = run_jobs(folder, args)
    table = wb.Table()
    table.add(f"jobs under {sum(faults.values())} faults that ended as the undisturbed one", f"{good} of {begun}", "", "",
              "all", good == begun)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--pause", type=float, default=8, help="most seconds before the next fault")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.exit(wb.main(lambda: measure(arguments)))
