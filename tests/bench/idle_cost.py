#!/usr/bin/python3
"""Memory and processor time of our processes while a job's workers only wait.

Formulas: VmRSS of /proc/PID/status, in MB of 10^6 bytes; run time from /proc/PID/schedstat over the
measured seconds, as a share of one core, all our processes of the node together.
"""

import argparse
import os
import pathlib
import sys
import time

import workbench as wb

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


def measure(seconds=10, workers=2):
    wb.need(wb.BIN / "trainctl", wb.STAMP)
    if programs():
        raise wb.Refused(f"other processes of this build run: {programs()}")
    table = wb.Table()
    with wb.scratch() as folder, wb.daemon(folder) as (_, address):
        marks = folder / "marks"
        marks.mkdir()
        front_end = wb.launch(folder, "--daemon", address, "--nproc-per-node", workers, wb.STAMP, marks, "wait")
        try:
            wb.wait_for(lambda: wb.stamps(marks, 0, workers), 30, "the workers")
            time.sleep(2)
            found = programs()
            groups = {"traind": found["traind"], "coordinator": found["train-coordinator"],
                      "keeper + supervisor": found["train-shim"]}
            pids = [pid for group in groups.values() for pid in group]
            before = {pid: run_ns(pid) for pid in pids}
            begin = time.monotonic_ns()
            time.sleep(seconds)
            passed = time.monotonic_ns() - begin
            share = {pid: 100 * (run_ns(pid) - before[pid]) / passed for pid in pids}
            for name, group in groups.items():
                size = sum(map(resident, group)) / 1e6
                table.add(f"idle {name}, RSS", f"{size:.1f} MB", must=f"<= {LIMITS[name]} MB",
                          holds=size <= LIMITS[name])
                table.add("  processor", f"{sum(share[pid] for pid in group):.3f} %")
            total = sum(share.values())
            table.add("idle, processor, all together", f"{total:.3f} %", must="< 0.1 %", holds=total < 0.1)
        finally:
            wb.end(front_end)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    sys.exit(wb.main(lambda: measure(args.seconds)))
