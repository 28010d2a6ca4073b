#!/usr/bin/python3
"""Kill -9 of a worker to the last worker of the new epoch in main, default grace; torchrun beside it.

Formula: (latest CLOCK_MONOTONIC stamp of epoch 1) - (CLOCK_MONOTONIC before kill). torchrun runs
with its defaults and once more with --monitor_interval 0.1, which newer versions have by default.
"""

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import time

import workbench as wb


def once(command, env, folder, workers, chance):
    marks = folder / "marks"
    marks.mkdir()
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command(marks), env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        first = wb.wait_for(lambda: wb.stamps(marks, 0, workers), 60, "the workers of epoch 0")
        time.sleep(0.2)  # the launcher has settled: what is measured is the restart alone
        victim = first[chance.randrange(workers)][1]
        begin = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        second = wb.wait_for(lambda: wb.stamps(marks, 1, workers), 120, "the workers of epoch 1")
        return max(ns for ns, _ in second.values()) - begin
    finally:
        wb.end(process)


def measure(workers=8, ours=15, peer=3):
    wb.need(wb.BIN / "trainctl", wb.STAMP)
    wb.need_torch()
    wb.need_quiet_machine()
    chance = random.Random(1)
    times = {"ours": [], "default": [], "0.1": []}

    def restart(kind, command):
        with wb.scratch() as folder:
            times[kind].append(once(command, wb.environment(folder), folder, workers, chance))

    for i in range(ours):
        restart("ours", lambda marks: [wb.BIN / "trainctl", "launch", "--nproc-per-node", str(workers),
                                       "--max-restarts", "1", wb.STAMP, marks, "wait"])
        for kind in ("default", "0.1") if i < peer else ():
            interval = [] if kind == "default" else ["--monitor_interval", kind]
            restart(kind, lambda marks: wb.torchrun(workers, "--max_restarts", "1", *interval, "--no_python",
                                                    str(wb.STAMP), str(marks), "wait"))
    table = wb.Table()
    median = {kind: statistics.median(values) for kind, values in times.items()}
    table.add(f"restart of {workers} workers after kill -9", wb.ms(times["ours"]), wb.ms(times["default"]),
              f"{median['default'] / median['ours']:.1f} x", "<= 60 ms", median["ours"] <= 60e6)
    table.add("  the same, torchrun polling every 0.1 s", wb.ms(times["ours"]), wb.ms(times["0.1"]),
              f"{median['0.1'] / median['ours']:.1f} x")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--repeat-peer", type=int, default=3)
    args = parser.parse_args()
    sys.exit(wb.main(lambda: measure(args.workers, args.repeat, args.repeat_peer)))
