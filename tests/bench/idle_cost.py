#!/usr/bin/python3
"""Memory and processor time of our processes while a job's workers only wait, or do 10 steps a second.

Formulas: VmRSS of /proc/PID/status, in MB of 10^6 bytes; run time from /proc/PID/schedstat over the
measured seconds, as a share of one core, all our processes of the node together.
"""

import argparse
import os
import pathlib
import sys
import time

import workbench as wb

# Writes its page as a training program does; offsets are those of runtime/local/page.cc.
STEPS = """\
import mmap, os, struct, sys, time
fd = os.open(os.environ["TRAINCTL_PAGE"], os.O_RDWR)
page = mmap.mmap(fd, 0)
open(f"{sys.argv[1]}/{os.environ['RANK']}", "w").close()
step = 0
while True:
    step += 1
    struct.pack_into("<QQQddI", page, 8, step, 0, step * 32, 1 / step, 0, 3)
    time.sleep(0.1)
"""

LIMITS = {"traind": 25, "coordinator": 25, "keeper + supervisor": 5}


def resident(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def run_ns(pid):
    return sum(int(task.joinpath("schedstat").read_text().split()[0])
               for task in pathlib.Path(f"/proc/{pid}/task").iterdir())


def programs():
    """{program's name: [pids]} of our running programs."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        try:
            exe = pathlib.Path(os.readlink(folder / "exe"))
        except (OSError, ValueError):
            continue
        if exe.parent == wb.BIN.resolve() and folder.name.isdigit():
            found.setdefault(exe.name, []).append(int(folder.name))
    return found


def shares(pids, seconds):
    """{pid: its share of a core over the next seconds, in percent}"""
    before = {pid: run_ns(pid) for pid in pids}
    begin = time.monotonic_ns()
    time.sleep(seconds)
    passed = time.monotonic_ns() - begin
    return {pid: 100 * (run_ns(pid) - before[pid]) / passed for pid in pids}


def groups():
    found = programs()
    return {"traind": found["traind"], "coordinator": found["train-coordinator"],
            "keeper + supervisor": found["train-shim"]}


def waiting(table, seconds, workers):
    with wb.scratch() as folder, wb.daemon(folder) as (_, address):
        marks = folder / "marks"
        marks.mkdir()
        front_end = wb.launch(folder, "--daemon", address, "--nproc-per-node", workers, wb.STAMP, marks, "wait")
        try:
            wb.wait_for(lambda: wb.stamps(marks, 0, workers), 30, "the workers")
            time.sleep(2)
            share = shares([pid for group in groups().values() for pid in group], seconds)
            for name, group in groups().items():
                size = sum(map(resident, group)) / 1e6
                table.add(f"idle {name}, RSS", f"{size:.1f} MB", must=f"<= {LIMITS[name]} MB",
                          holds=size <= LIMITS[name])
                table.add("  processor", f"{sum(share[pid] for pid in group):.3f} %")
            total = sum(share.values())
            table.add("idle, processor, all together", f"{total:.3f} %", must="< 0.1 %", holds=total < 0.1)
        finally:
            wb.end(front_end)


def stepping(table, seconds, workers):
    with wb.scratch() as folder, wb.daemon(folder) as (_, address):
        (folder / "step.py").write_text(STEPS)
        marks = folder / "marks"
        marks.mkdir()
        front_end = wb.launch(folder, "--daemon", address, "--nproc-per-node", workers, folder / "step.py", marks)
        try:
            wb.wait_for(lambda: len(list(marks.iterdir())) == workers, 60, "the workers")
            time.sleep(2)
            found = {**groups(), "trainctl": [front_end.pid]}
            share = shares([pid for group in found.values() for pid in group], seconds)
            each = {name: sum(share[pid] for pid in group) / workers for name, group in found.items()}
            parts = " + ".join(f"{value:.3f}" for value in each.values())
            table.add(f"{workers} workers at 10 steps/s, processor for each: {' + '.join(each)}",
                      f"{parts} = {sum(each.values()):.3f} %", must="< 0.1 %", holds=sum(each.values()) < 0.1)
        finally:
            wb.end(front_end)


def measure(seconds=10, workers=2, stepping_workers=8):
    wb.need(wb.BIN / "trainctl", wb.STAMP)
    if programs():
        raise wb.Refused(f"other processes of this build run: {programs()}")
    table = wb.Table()
    waiting(table, seconds, workers)
    stepping(table, seconds, stepping_workers)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    sys.exit(wb.main(lambda: measure(args.seconds)))
