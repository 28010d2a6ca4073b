#!/usr/bin/python3
"""Stop of a job whose workers have escaped children that ignore SIGTERM, with a grace of 0.

8 workers start 4 processes each, which have forked twice, have a session of their own and ignore SIGTERM. Formula:
(the last of these processes is gone, by pidfd) - (CLOCK_MONOTONIC before trainctl launch is sent SIGINT).
"""

import argparse
import os
import select
import signal
import sys
import time

import workbench as wb

WORKER = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def note():
    path = f"{sys.argv[1]}/{os.getpid()}"
    open(path + ".new", "w").close()
    os.rename(path + ".new", path)
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note()
            time.sleep(1000)
        os._exit(0)
note()
time.sleep(1000)
"""


def once(workers, children):
    with wb.scratch() as folder:
        marks = folder / "marks"
        marks.mkdir()
        (folder / "escape.py").write_text(WORKER)
        job = wb.launch(folder, "--nproc-per-node", workers, "--grace", "0s", folder / "escape.py", marks, children)
        pidfds = {}
        try:
            count = workers * (children + 1)
            pids = lambda: [int(mark.name) for mark in marks.iterdir() if mark.name.isdigit()]
            wb.wait_for(lambda: len(pids()) == count, 60, "the workers and their children")
            pidfds = {os.pidfd_open(pid): pid for pid in pids()}
            left = select.poll()
            for fd in pidfds:
                left.register(fd, select.POLLIN)
            time.sleep(0.3)  # the workers have settled: what is measured is their end alone
            begin = time.monotonic_ns()
            job.send_signal(signal.SIGINT)
            gone = 0
            while gone < count:
                ready = left.poll(30_000)
                if not ready:
                    raise RuntimeError(f"{count - gone} of {count} processes are left after 30 s")
                for fd, _ in ready:
                    left.unregister(fd)
                gone += len(ready)
            return time.monotonic_ns() - begin
        finally:
            for fd in pidfds:
                os.close(fd)
            wb.end(job)


def measure(workers=8, children=4, repeat=15):
    wb.need(wb.BIN / "trainctl")
    wb.need_quiet_machine()
    times = [once(workers, children) for _ in range(repeat)]
    table = wb.Table()
    table.add(f"stop of {workers} workers with {children} escaped children each, grace 0, {repeat} runs",
              wb.ms(times), must="all <= 200 ms", holds=max(times) <= 200e6)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15)
    args = parser.parse_args()
    sys.exit(wb.main(lambda: measure(repeat=args.repeat)))
