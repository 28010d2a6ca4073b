#!/usr/bin/python3
"""64 workers that print 1 MB/s each in parts of lines: whole lines, processor time, latency.

Writers print a part every 10 ms, which mostly ends within a line. Formulas: processor time is the run time in
/proc/PID/schedstat over the measured seconds, per byte that came into the logs meanwhile; the peer is
bench_lines copy, which reads the same pipes and writes to the same file system; pairs in one run. Logs lie in
/dev/shm, because a disk that others use costs now this, now that program processor time. Latency is the time at
which a reader of trainctl's stdout has a line, less the time at which the line was complete, for all lines but
those of the first second; every line is checked: its length, and that it is the next one of its rank. Where it is
not held at the full rate, lower ones are tried, to show what this machine holds. The age of a log is the time
since the newest line in it was complete, looked at again and again in each of the logs; a part comes every 10 ms.
--realtime lets other programs wait: for a machine that is not idle.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import workbench as wb
from idle_cost import programs, run_ns

LINES = wb.BUILD / "tests" / "bench_lines"
OURS = ("train-shim",)
WHOLE_PATH = ("train-shim", "traind", "train-coordinator", "trainctl")


@contextlib.contextmanager
def memory_folder():
    folder = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def bytes_in(logs):
    return sum(path.stat().st_size for path in logs())


def ages(paths, seconds):
    """Milliseconds, of the newest line of each log, many times. A line ends with its nanoseconds."""
    files = [open(path, "rb") for path in paths]
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        for file in files:
            file.seek(max(file.seek(0, os.SEEK_END) - 1024, 0))
            now = time.monotonic_ns()
            found.append((now - int(file.read(1024).rsplit(b"\n", 1)[0].rsplit(b" ", 1)[1])) / 1e6)
            time.sleep(0.0005)
    for file in files:
        file.close()
    return sorted(found)


def cost(pids, logs, seconds):
    """Processor nanoseconds of each per byte that came into the logs meanwhile, and the bytes per second."""
    before = {pid: run_ns(pid) for pid in pids}
    begin, first = time.monotonic(), bytes_in(logs)
    time.sleep(seconds)
    used = {pid: run_ns(pid) - before[pid] for pid in pids}
    count, passed = bytes_in(logs) - first, time.monotonic() - begin
    return {pid: ns / count for pid, ns in used.items()}, count / passed


def cost_of(names, logs, seconds):
    """The same of all processes of each program, in the order of `names`."""
    pids = {name: programs()[name] for name in names}
    each, speed = cost([pid for found in pids.values() for pid in found], logs, seconds)
    return [sum(each[pid] for pid in pids[name]) for name in names], speed


def write_words(rate, seconds):
    return [LINES, "write", str(rate), str(seconds), "10"]


def of_copy(writers, rate, seconds):
    with memory_folder() as folder:
        process = subprocess.Popen([LINES, "copy", folder, str(writers), *write_words(rate, seconds + 3)])
        logs = lambda: folder.iterdir()
        wb.wait_for(lambda: bytes_in(logs) > writers * rate / 2, 60, "the writers")
        each, _ = cost([process.pid], logs, seconds)
        process.wait(60)
        return each[process.pid]


def of_ours(writers, rate, seconds, watched):
    with memory_folder() as folder:
        reader = subprocess.Popen([LINES, "read"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        job = subprocess.Popen([wb.BIN / "trainctl", "launch" if watched else "submit", "--name", "printing",
                                "--nproc-per-node", str(writers), *map(str, write_words(rate, seconds + 3))],
                               stdin=subprocess.DEVNULL, stdout=reader.stdin if watched else subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env=wb.environment(folder))
        reader.stdin.close()
        logs = lambda: (folder / "state/trainctl/jobs").glob("*/logs/0/*/stdout.log")
        wb.wait_for(lambda: bytes_in(logs) > writers * rate / 2, 60, "the writers")
        shim = cost_of(WHOLE_PATH if watched else OURS, logs, seconds)
        age = ages(list(logs()), 1.5) if not watched else None
        job.wait(120)
        wb.wait_for(lambda: not programs(), 60, "the end of the job")
        reader.stdin = None
        found = json.loads([line for line in reader.communicate(timeout=60)[1].splitlines() if line[:1] == "{"][-1])
        return shim, found, age


def measure(writers=64, rate=1_000_000, seconds=6.0, pairs=3):
    wb.need(wb.BIN / "trainctl", LINES)
    wb.need_quiet_machine()
    if programs():
        raise wb.Refused(f"other processes of this build run: {programs()}")
    ratios, ours, copies, age = [], [], [], []
    for _ in range(pairs):
        copy = of_copy(writers, rate, seconds)
        ((shim,), _), _, seen = of_ours(writers, rate, seconds, watched=False)
        ratios.append(shim / copy)
        ours.append(shim)
        copies.append(copy)
        age += seen
    age.sort()
    (whole, speed), found, _ = of_ours(writers, rate, seconds, watched=True)
    table = wb.Table()
    ratio = statistics.median(ratios)
    table.add(f"output of {writers} writers into their logs, processor time per MB",
              f"{statistics.median(ours):.2f} ms", f"copy {statistics.median(copies):.2f} ms",
              f"{ratio:.2f} x ({min(ratios):.2f}-{max(ratios):.2f})", "<= 1.5 x", ratio <= 1.5)
    median, worst = age[len(age) // 2], age[len(age) * 99 // 100]
    table.add("  age of the newest line in a log, median; 99 %", f"{median:.1f}; {worst:.1f} ms", must="< 50 ms",
              holds=worst < 50)
    table.add("the same and on to a terminal: shim, traind, coordinator, trainctl", f"{sum(whole):.2f} ms",
              "", f"{sum(whole) / statistics.median(copies):.2f} x")
    table.add("  each of them", "; ".join(f"{each:.2f}" for each in whole) + " ms")
    table.add("  bytes per second that came", f"{speed / 1e6:.1f} MB")
    table.add("  lines; torn, missing or doubled", f"{found['lines']}; {found['torn']}", must="0",
              holds=found["torn"] == 0 and found["lines"] > 0 and found["left"] == 0)
    add_latency(table, found, rate, must="< 50 ms")
    while found["p99"] >= 50 and rate >= 100_000:
        rate //= 2
        _, found, _ = of_ours(writers, rate, seconds, watched=True)
        add_latency(table, found, rate)
    return table


def add_latency(table, found, rate, must=""):
    table.add(f"  latency at {rate / 1e6:g} MB/s of each, median; 99 %; 99.9 %",
              f"{found['p50']:.1f}; {found['p99']:.1f}; {found['p999']:.1f} ms", must=must,
              holds=found["p99"] < 50 if must else None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=64)
    parser.add_argument("--rate", type=int, default=1_000_000, help="bytes per second of each")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--pairs", type=int, default=3)
    args = wb.parse(parser)
    sys.exit(wb.main(lambda: measure(args.writers, args.rate, args.seconds, args.pairs)))
