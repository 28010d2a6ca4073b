#!/usr/bin/python3
"""kill -9 of traind again and again under a job that trains and prints.

A worker does steps of fixed work and prints a line after each. Windows with kills alternate with windows without;
the front end starts the daemon again. Formula: steps per second in the windows with kills over those
without, median of all pairs; every line that the front end shows is the next one of its rank, and the job had one
epoch only. Within --limit the kills end, and those that were done count. --realtime lets other programs wait: for a
machine that is not idle.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import statistics
import sys
import time

import workbench as wb

WORKER = """\
import os, sys, time
import numpy
a = numpy.random.default_rng(0).random((192, 192), dtype=numpy.float32)
n = 0
while not os.path.exists(sys.argv[1]):
    for _ in range(8):
        a = numpy.tanh(a @ a)
    n += 1
    print(f"step {n} at {time.monotonic_ns()}", flush=True)
print(f"done {n}", flush=True)
"""


def step_times(folder, workers):
    """{rank: [nanoseconds of each step]} from what the front end showed; complains of each gap."""
    times = {rank: [] for rank in range(workers)}
    for line in (folder / "launch.log").read_text(errors="replace").splitlines():
        match = re.fullmatch(r"\[[^:]+:(\d+)\] (step|done) (\d+)(?: at (\d+))?", line)
        if not match:
            if line.startswith("["):
                raise RuntimeError(f"a torn line: {line}")
            continue
        rank, number = int(match[1]), int(match[3])
        if number != len(times[rank]) + (match[2] == "step"):
            raise RuntimeError(f"rank {rank}: found {line} after {len(times[rank])} steps")
        if match[2] == "step":
            times[rank].append(int(match[4]))
    return times


def daemon_of(front_end):
    """The pid of its private daemon; looking at all processes would cost the worker more than the kill."""
    for children in pathlib.Path(f"/proc/{front_end}/task").glob("*/children"):
        for pid in children.read_text().split():
            if pathlib.Path(f"/proc/{pid}/comm").read_text() == "traind\n":
                return int(pid)
    return None


def kill_daemon(front_end, shown):
    """Kills it and waits until what follows is shown by way of another one."""
    old = daemon_of(front_end)
    os.kill(old, signal.SIGKILL)
    wb.wait_for(lambda: daemon_of(front_end) not in (None, old), 30, "the next daemon", 0.01)
    size = shown.stat().st_size
    wb.wait_for(lambda: shown.stat().st_size > size, 30, "output after the kill", 0.01)


def measure(kills=100, kills_per_window=2, window=3.0, limit=480.0, workers=1):
    wb.need(wb.BIN / "trainctl")
    wb.need_torch()
    wb.need_quiet_machine()
    chance = random.Random(1)
    survived, windows = 0, []
    with wb.scratch() as folder:
        (folder / "train.py").write_text(WORKER)
        job = wb.launch(folder, "--nproc-per-node", workers, folder / "train.py", folder / "enough",
                        env=wb.environment(folder, OMP_NUM_THREADS="1", PYTHON_EXEC="/usr/bin/python3"))
        try:
            shown = folder / "launch.log"
            wb.wait_for(lambda: b"step 50 " in shown.read_bytes(), 60, "the first steps")
            stop_at = time.monotonic() + limit
            while survived < kills and time.monotonic() < stop_at:
                for with_kills in chance.sample([False, True], 2):
                    begin = time.monotonic_ns()
                    for _ in range(kills_per_window if with_kills else 0):
                        kill_daemon(job.pid, shown)
                        survived += 1
                        # The front end takes a daemon that dies within a second of its start for broken.
                        time.sleep(1.1)
                    time.sleep(max(window - (time.monotonic_ns() - begin) * 1e-9, 0))
                    windows.append((with_kills, begin, time.monotonic_ns()))
                if job.poll() is not None:
                    raise RuntimeError(f"the job ended after {survived} kills: {shown.read_text()[-2000:]}")
            (folder / "enough").touch()
            status = job.wait(60)
            report = next((folder / "state/trainctl/jobs").glob("*/report.json"))
            epochs = len(json.loads(report.read_text())["epochs"])
        finally:
            wb.end(job)
        times = step_times(folder, workers)
        logged = sum(path.read_bytes().count(b"\n") for path in pathlib.Path(folder).glob(
            "state/trainctl/jobs/*/logs/*/*/stdout.log"))
    shown_lines = sum(map(len, times.values())) + workers
    rate = lambda begin, end: sum(begin <= t < end for ts in times.values() for t in ts) / (end - begin)
    rates = [(with_kills, rate(begin, end)) for with_kills, begin, end in windows]
    pairs = [dict(rates[i:i + 2]) for i in range(0, len(rates), 2)]
    ratios = [pair[True] / pair[False] for pair in pairs]
    ratio = statistics.median(ratios)
    table = wb.Table()
    table.add("kill -9 of traind under a job that trains: survived", f"{survived} of {survived}", must=f"{kills} of {kills}",
              holds=status == 0 and epochs == 1 and survived >= kills)
    table.add("  lines printed; lost or doubled", f"{logged}; {abs(logged - shown_lines)}", must="0",
              holds=logged == shown_lines)
    table.add(f"  steps per second with kills over those without, {len(pairs)} pairs",
              f"{statistics.median(1e9 * pair[True] for pair in pairs):.1f}",
              f"{statistics.median(1e9 * pair[False] for pair in pairs):.1f}",
              f"{ratio:.3f} (mean {statistics.mean(ratios):.3f})", ">= 0.99", ratio >= 0.99)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--per-window", type=int, default=2)
    parser.add_argument("--window", type=float, default=3.0, help="seconds")
    parser.add_argument("--limit", type=float, default=480, help="seconds for all kills")
    args = wb.parse(parser)
    sys.exit(wb.main(lambda: measure(args.kills, args.per_window, args.window, args.limit)))
