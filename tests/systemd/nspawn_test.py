"""traind as a service of a real systemd: what deploy/systemd/README.md says. Runs where
TRAINCTL_SYSTEMD_CACHE names a folder in which a Debian tree (300 MB) may be kept between runs."""

import contextlib
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

import container
from container import Skip, wait_until

BUILD = pathlib.Path(os.environ["TRAINCTL_BIN_DIR"]).parent
DATA = "/usr/share/datasets/fashion-mnist"
JOBS = "/var/lib/trainctl/jobs"
MLP = """name: {name}
nodes: {{workers: 2}}
train:
  model: {{kind: mlp, hidden: [64]}}
  data: {{kind: fashion_mnist, path: {data}}}
  optimizer: {{kind: sgd, lr: 0.01}}
  batch: {{global: 64}}
  steps: 100000000
checkpoint: {{dir: /root/{name}.checkpoints, every: 100 steps, keep: 3}}
"""
# Numbered lines until the test says so, then how many there were.
COUNTS = """#!/bin/sh
i=0
while [ ! -e /root/enough ]; do
  echo "line $i"
  i=$((i + 1))
  sleep 0.002
done
echo "all $i"
"""


class Job:
    """A job in the container."""

    def __init__(self, c, job_id):
        self.c = c
        self.id = job_id
        self.scope = f"trainctl-{job_id}.scope"
        self.coordinator_scope = f"trainctl-{job_id}.coordinator.scope"

    def listed(self):
        for line in self.c.run("trainctl", "list", "--json").splitlines():
            found = json.loads(line)
            if found["job"] == self.id:
                return found["state"], found.get("step", 0)
        raise AssertionError(f"{self.id} is not listed")

    def report(self):
        """What is written down; nothing, as long as nothing is."""
        with contextlib.suppress(FileNotFoundError):
            return json.loads(self.c.read(f"{JOBS}/{self.id}/report.json"))
        return {}

    def processes(self, unit):
        """The pids of the unit's members, as the container sees them, by the program's name."""
        found = {}
        for path in self.members(unit):
            for pid in path.read_text().split():
                program = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
                found.setdefault(program, []).append(int(pid))
        return found

    def members(self, unit):
        folder = cgroup_of(self.c, unit)
        return sorted(folder.rglob("cgroup.procs")) if folder is not None else []

    def workers(self):
        """In whichever scope: a shim that follows another may find its name still taken."""
        top = cgroup_of(self.c, "trainctl.slice")
        found = []
        for procs in top.rglob("cgroup.procs") if top is not None else []:
            if procs.relative_to(top).parts[0].startswith(f"trainctl-{self.id}."):
                with contextlib.suppress(OSError):
                    found += [int(pid) for pid in procs.read_text().split()
                              if pathlib.Path(f"/proc/{pid}/comm").read_text() == "train-worker\n"]
        return sorted(found)

    def await_steps(self, more=50):
        state, now = wait_until(lambda: (f := self.listed())[0] == "running" and f[1] > 0 and f,
                                lambda: f"steps of {self.id}, which is {self.listed()}")
        wait_until(lambda: self.listed()[1] >= now + more, lambda: f"steps beyond {now} of {self.listed()}")
        return state, now + more

    def stop(self):
        self.c.run("trainctl", "stop", self.id)
        wait_until(lambda: self.listed()[0] == "stopped", lambda: f"its end: {self.listed()}")


def cgroup_of(c, unit):
    """Its folder as this machine sees it; None: there is none."""
    path = c.run("systemctl", "show", "--property=ControlGroup", "--value", unit).strip()
    if not path:
        return None
    top = pathlib.Path(f"/proc/{c.leader}/cgroup").read_text()
    top = re.search(r"^0::(.*)/init\.scope$", top, re.MULTILINE)[1]
    for mount in (container.CGROUPS, container.CGROUPS / "unified"):
        if (mount / top.lstrip("/") / path.lstrip("/")).is_dir():
            return mount / top.lstrip("/") / path.lstrip("/")
    return None


def main_pid(c, *flags):
    return int(c.run("systemctl", *flags, "show", "--property=MainPID", "--value", "traind"))


def await_other_daemon(c, old):
    wait_until(lambda: main_pid(c) not in (0, old), "another traind")
    wait_until(lambda: c.run("systemctl", "is-active", "traind", check=False).strip() == "active", "traind is ready")


def submit_mlp(c, name, *flags):
    c.write(f"/root/{name}.yaml", MLP.format(name=name, data=DATA))
    return Job(c, c.run("trainctl", "submit", *flags, f"{name}.yaml").strip())


def environment(pid):
    return pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")


def gone(c, unit):
    return c.run("systemctl", "show", "--property=LoadState", "--value", unit).strip() == "not-found"


def service_is_ready_and_small(c):
    facts = dict(line.split("=", 1) for line in c.run("systemctl", "show", "traind").splitlines() if "=" in line)
    assert facts["ActiveState"] == "active" and facts["NotifyAccess"] == "main", facts
    assert facts["KillMode"] == "process" and facts["Delegate"] == "yes", facts
    status = c.run("cat", f"/proc/{main_pid(c)}/status")
    assert int(re.search(r"VmRSS:\s+(\d+)", status)[1]) <= 25 * 1024, status
    c.run("systemd-analyze", "verify", "/usr/lib/systemd/system/traind.service")
    # Nobody may reboot the machine from a job; all else that root may do is there.
    bounding = int(re.search(r"CapBnd:\s+(\w+)", status)[1], 16)
    assert not bounding & 1 << 22, status


def job_has_scopes_of_its_own(c):
    job = submit_mlp(c, "scope")
    job.await_steps()
    own = job.processes(job.scope)
    assert sorted(own) == ["shim-keeper", "shim-supervisor", "train-worker"], own
    assert len(own["train-worker"]) == 2, own
    assert list(job.processes(job.coordinator_scope)) == ["train-coordinat"]
    assert list(job.processes("traind")) == ["traind"]
    assert job.scope in c.run("systemd-cgls", "--no-pager", "/trainctl.slice")
    for pids in [*own.values(), *job.processes(job.coordinator_scope).values()]:
        for pid in pids:
            leaked = [e for e in environment(pid)
                      if re.match("NOTIFY_SOCKET|WATCHDOG_|LISTEN_|JOURNAL_STREAM|SYSTEMD_EXEC_PID", e)]
            assert not leaked, leaked
    worker = own["train-worker"][0]
    limits = dict(re.findall(r"^Max (.+?)  +(\S+ +\S+)", pathlib.Path(f"/proc/{worker}/limits").read_text(), re.MULTILINE))
    # Where the container may not raise a limit, the unit cannot either.
    hard = pathlib.Path(f"/proc/{c.leader}/limits").read_text()
    locked = re.search(r"Max locked memory +\S+ +(\S+)", hard)[1]
    files = re.search(r"Max open files +\S+ +(\d+)", hard)[1]
    assert limits["locked memory"].split()[0] in ("unlimited", locked), limits
    assert int(limits["open files"].split()[0]) == min(65536, int(files)), limits
    assert pathlib.Path(f"/proc/{worker}/oom_score_adj").read_text() == "0\n"
    folders = [cgroup_of(c, unit) for unit in (job.scope, job.coordinator_scope)]
    job.stop()
    wait_until(lambda: not any(folder.exists() for folder in folders), lambda: f"the end of {folders}")
    wait_until(lambda: gone(c, job.scope) and gone(c, job.coordinator_scope), "units that are unloaded")


def no_death_of_the_daemon_is_felt(c):
    """Restart, kill -9 and the watchdog, under a job that trains and one that writes."""
    c.write("/root/counts.sh", COUNTS)
    front_end = c.start("trainctl", "launch", "--name", "counts", "--nproc-per-node", "2", "/root/counts.sh")
    mlp = submit_mlp(c, "deaths")
    mlp.await_steps()
    before = mlp.workers()
    assert len(before) == 2, before
    ways = {"restart": ["systemctl", "restart", "traind"],
            "kill -9": ["systemctl", "kill", "--kill-whom=main", "--signal=KILL", "traind"],
            # A daemon that hangs tells the watchdog nothing.
            "watchdog": ["systemctl", "kill", "--kill-whom=main", "--signal=STOP", "traind"]}
    for way, words in [*ways.items(), *list(ways.items())[:2]]:
        daemon = main_pid(c)
        c.run(*words)
        await_other_daemon(c, daemon)
        mlp.await_steps()
        assert mlp.workers() == before, f"{way}: {before} became {mlp.workers()}"
    assert "Watchdog timeout" in c.run("journalctl", "--boot", "--unit=traind")
    c.write("/root/enough", "")
    out, err = front_end.communicate(timeout=60)
    assert front_end.returncode == 0, (front_end.returncode, err)
    folder = next(iter((c.root / JOBS.lstrip("/")).glob("counts-*")))
    for rank in range(2):
        wanted = (folder / f"logs/0/{rank}/stdout.log").read_text().splitlines()
        count = len(wanted) - 1
        assert wanted == [*(f"line {i}" for i in range(count)), f"all {count}"], f"rank {rank} in its file"
        marker = f":{rank}] "
        shown = [line.split(marker, 1)[1] for line in out.splitlines() if marker in line]
        assert shown == wanted, f"rank {rank}: {len(shown)} of {len(wanted)} lines were shown"
        print(f"        rank {rank}: {len(wanted)} lines, each once and in order", flush=True)
    mlp.stop()
    assert len(mlp.report()["epochs"]) == 1, mlp.report()["epochs"]
    log = c.run("journalctl", "--boot", "--unit=traind")
    assert "left-over" not in log and "remains running" not in log, log


def stopped_service_leaves_workers_their_lease(c):
    job = submit_mlp(c, "stop", "--lease", "4s")
    job.await_steps(300)
    before = job.workers()
    c.run("systemctl", "stop", "traind")
    assert job.workers() == before
    assert c.run("systemctl", "show", "--property=Result", "--value", "traind").strip() == "success"
    wait_until(lambda: gone(c, job.scope), "the end of the lease")
    assert list(job.processes(job.coordinator_scope)) == ["train-coordinat"]
    c.run("systemctl", "start", "traind")
    job.await_steps()
    epochs = job.report()["epochs"]
    assert len(epochs) == 2, epochs
    job.stop()


def stopped_scope_is_a_loss_of_workers_only(c):
    job = submit_mlp(c, "scoped")
    job.await_steps(200)
    before = job.workers()
    c.run("systemctl", "stop", job.scope)
    wait_until(lambda: len(job.workers()) == 2 and not set(job.workers()) & set(before), "other workers")
    job.await_steps()
    job.stop()


def job_goes_on_after_a_reboot(c):
    job = submit_mlp(c, "reboot")
    job.await_steps(300)
    daemon = c.leader
    c.reboot()
    assert c.leader != daemon
    assert job.listed()[0] == "interrupted", job.listed()
    assert gone(c, job.scope)
    front_end = c.start("trainctl", "resume", job.id)
    job.await_steps()
    epochs = job.report()["epochs"]
    assert len(epochs) == 2, epochs
    assert re.search(r"from step [1-9]\d*00\b", c.read(f"{JOBS}/{job.id}/coordinator.log")), epochs
    assert list(job.processes("traind")) == ["traind"]
    job.stop()
    front_end.communicate(timeout=60)


def user_has_a_daemon_of_her_own(c):
    c.run("useradd", "--create-home", "--uid", "1234", "alice")
    c.run("loginctl", "enable-linger", "alice")
    wait_until(lambda: (c.root / "var/lib/systemd/linger/alice").exists() and
               c.run("systemctl", "is-active", "user@1234", check=False).strip() == "active", "alice's systemd")
    alice = ["runuser", "-u", "alice", "--", "env", "--chdir=/home/alice", "XDG_RUNTIME_DIR=/run/user/1234", "HOME=/home/alice"]
    c.run(*alice, "systemctl", "--user", "start", "traind")
    c.write("/home/alice/work.sh", "#!/bin/sh\nwhile [ ! -e /home/alice/end ]; do sleep 0.02; done\n")
    job_id = c.run(*alice, "trainctl", "submit", "/home/alice/work.sh").strip()
    scope = f"/user.slice/user-1234.slice/user@1234.service/trainctl.slice/trainctl-{job_id}.scope"
    pids = wait_until(lambda: c.run("pgrep", "--full", "^/bin/sh /home/alice/work.sh", check=False).split(),
                      "her worker")
    assert scope in c.run("cat", f"/proc/{pids[0]}/cgroup"), c.run("cat", f"/proc/{pids[0]}/cgroup")
    c.run(*alice, "systemctl", "--user", "restart", "traind")
    assert job_id in c.run(*alice, "trainctl", "list")
    assert c.run("pgrep", "--full", "^/bin/sh /home/alice/work.sh").split() == pids
    c.write("/home/alice/end", "", 0o644)
    wait_until(lambda: re.search(f"{job_id}.*succeeded", c.run(*alice, "trainctl", "list")), "its end")
    c.run(*alice, "systemctl", "--user", "stop", "traind")


def without_a_bus_the_job_stays_with_the_daemon(c):
    c.run("systemctl", "stop", "dbus.socket", "dbus.service")
    job = submit_mlp(c, "nobus")
    job.await_steps()
    assert cgroup_of(c, job.scope) is None
    here = job.processes("traind")
    assert len(here["train-worker"]) == 2, here
    log = c.run("journalctl", "--boot", "--unit=traind")
    assert "stays in the cgroup of traind" in log and "dbus" in log, log
    daemon = main_pid(c)
    c.run("systemctl", "restart", "traind")
    await_other_daemon(c, daemon)
    job.await_steps()
    assert job.processes("traind")["train-worker"] == here["train-worker"]
    job.stop()
    c.run("systemctl", "start", "dbus.socket")


def tests():
    return [f for f in globals().values()
            if inspect.isfunction(f) and f.__module__ == __name__ and list(inspect.signature(f).parameters) == ["c"]
            and f is not main]


def install(root):
    container.call("cmake", "--install", str(BUILD), "--prefix", "/usr", env={**os.environ, "DESTDIR": str(root)})
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "traind.service").symlink_to("/usr/lib/systemd/system/traind.service")


def main():
    cache = os.environ.get("TRAINCTL_SYSTEMD_CACHE")
    container.check_machine()
    if not cache:
        raise Skip("TRAINCTL_SYSTEMD_CACHE names no folder for a Debian tree of 300 MB")
    if not os.path.isdir(DATA):
        raise Skip(f"{DATA} is not there (package dataset-fashion-mnist)")
    programs = [BUILD / "bin" / name for name in ("trainctl", "traind", "train-shim", "train-worker",
                                                  "train-coordinator")]
    tree = container.make_tree(cache, programs)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainctl-systemd-", dir=cache))
    c = container.Container(folder / "root", f"trainctl-systemd-{os.getpid()}", [DATA])
    failed = 0
    try:
        subprocess.run(["cp", "--archive", "--reflink=auto", tree, c.root], check=True)
        install(c.root)
        c.boot()
        for test in tests():
            if sys.argv[1:] and test.__name__ not in sys.argv[1:]:
                continue
            began = time.monotonic()
            try:
                test(c)
                print(f"ok      {test.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
            except Exception:  # pylint: disable=broad-except
                failed += 1
                print(f"FAILED  {test.__name__}", flush=True)
                traceback.print_exc()
                print(c.run("journalctl", "--boot", "--no-pager", "--lines=60", check=False))
    finally:
        c.end()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Skip as reason:
        print(f"skipped, because {reason}")
        sys.exit(77)
