"""Containment where cgroup v2 is the only hierarchy: workers are in a cgroup of their job, and it goes with them."""

import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "process/cli"))
import sandbox  # noqa: E402
from sandbox import processes_with, wait_until  # noqa: E402

ROOT = pathlib.Path("/sys/fs/cgroup")
ESCAPES = """
for i in 1 2 3 4; do
  setsid sh -c 'trap "" TERM HUP; echo > escaped.$RANK.$i; while :; do sleep 1000; done' &
  (setsid sh -c 'trap "" TERM HUP; sleep 1000' &)
done
echo $$ > worker.$RANK
trap "" TERM; while :; do sleep 1000; done
"""


def why_not():
    if os.geteuid() != 0:
        return "only root makes cgroups without a manager"
    if not (ROOT / "cgroup.controllers").exists():
        return "cgroup v2 is not the only hierarchy here"
    return None


def cgroup_of(pid):
    return pathlib.Path(f"/proc/{pid}/cgroup").read_text().strip().split("::", 1)[1]


def a_job_that_is_stopped_leaves_neither_process_nor_cgroup(s):
    process = s.start("launch", "--nproc-per-node", "8", "--grace", "0", s.shell(ESCAPES))
    workers = [s.folder / f"worker.{rank}" for rank in range(8)]
    wait_until(lambda: all(w.exists() and w.read_text() for w in workers), "8 workers")
    wait_until(lambda: len(processes_with(s.mark)) > 8 * 5, "their descendants")
    cgroups = {cgroup_of(int(w.read_text())) for w in workers}
    assert all("trainctl" in name for name in cgroups), cgroups
    count = len(processes_with(s.mark))
    begin = time.monotonic()
    stop = s.start("stop", "--now", s.job().name)
    wait_until(lambda: not [c for c in processes_with(s.mark).values() if b"sleep" in c or b"work.sh" in c],
               lambda: processes_with(s.mark))
    print(f"figure: stop of {count} processes, cgroup v2 {sorted(cgroups)[0]}: {(time.monotonic() - begin) * 1e3:.0f} ms")
    stop.wait(30)
    process.wait(30)
    wait_until(lambda: not any((ROOT / name.lstrip("/")).exists() for name in cgroups), f"{cgroups} are left")


REASON = why_not()
if REASON is not None:
    print(f"skipped, because {REASON}")
    sys.exit(77)
sandbox.main(__name__)
