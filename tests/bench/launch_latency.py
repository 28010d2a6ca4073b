#!/usr/bin/python3
"""Start of the command to the last of 8 workers in main: without a daemon, with one, torchrun.

Formula: (latest CLOCK_MONOTONIC stamp of the workers) - (CLOCK_MONOTONIC before the command starts).
The three take turns, so that all see the same machine.
"""

import argparse
import statistics
import subprocess
import sys
import time

import workbench as wb


def once(command, env, folder, workers):
    marks = folder / "marks"
    marks.mkdir()
    begin = time.monotonic_ns()
    done = subprocess.run(command(marks), env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    found = wb.stamps(marks, 0, workers)
    if done.returncode != 0 or not found:
        raise RuntimeError(f"{command(marks)} ended with {done.returncode}: {done.stderr.decode()[-1500:]}")
    return max(ns for ns, _ in found.values()) - begin


def measure(workers=8, ours=20, peer=5):
    wb.need(wb.BIN / "trainctl", wb.STAMP)
    wb.need_torch()
    wb.need_quiet_machine()
    times = {"without": [], "with": [], "peer": []}
    with wb.scratch() as top, wb.daemon(top) as (_, address):
        count = str(workers)

        def start(kind, command):
            with wb.scratch() as folder:
                times[kind].append(once(command, wb.environment(folder), folder, workers))

        for i in range(ours):
            start("without", lambda marks: [wb.BIN / "trainctl", "launch", "--nproc-per-node", count, wb.STAMP, marks])
            start("with", lambda marks: [wb.BIN / "trainctl", "launch", "--daemon", address, "--nproc-per-node", count,
                                         wb.STAMP, marks])
            if i < peer:
                start("peer", lambda marks: wb.torchrun(workers, "--no_python", str(wb.STAMP), str(marks)))
    table = wb.Table()
    median = {kind: statistics.median(values) for kind, values in times.items()}
    for kind, limit in (("without", 100), ("with", 60)):
        ratio = median["peer"] / median[kind]
        table.add(f"launch of {workers} workers, {kind} a daemon", wb.ms(times[kind]), wb.ms(times["peer"]),
                  f"{ratio:.1f} x", f"<= {limit} ms, >= 10 x", median[kind] <= limit * 1e6 and ratio >= 10)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=20, help="launches of ours, each way")
    parser.add_argument("--repeat-peer", type=int, default=5)
    args = parser.parse_args()
    sys.exit(wb.main(lambda: measure(args.workers, args.repeat, args.repeat_peer)))
