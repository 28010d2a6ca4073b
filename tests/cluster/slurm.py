"""A real Slurm of a few nodes on one machine: its own munge, slurmctld and one slurmd for each node, all in
one folder. Nodes are called by the loopback addresses that they have, so that no name has to be known."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess

import nodes
from nodes import sandbox
from sandbox import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "scancel")
CONFIGURATION = """\
ClusterName=trainctl
SlurmctldHost={machine}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
KillWait=20
SlurmdTimeout=300
"""


def search_path():
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def why_not():
    """Why no Slurm can be had here; None if one can."""
    if os.geteuid() != 0:
        return "only root can run a Slurm of its own"
    missing = [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]
    if missing:
        return f"{', '.join(missing)} of the packages munge, slurmctld, slurmd and slurm-client are not installed"
    if not os.path.ismount("/sys/fs/cgroup"):
        return "slurmd does not start where no cgroups are mounted"
    return None


def own_environment(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def all_pids():
    return [int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit()]


def parent_and_name(pid):
    with contextlib.suppress(OSError):
        head, tail = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)
        return int(tail.split()[1]), head.split("(", 1)[1]
    return 0, ""


def ancestors(pid):
    count = 0
    while pid > 1:
        pid, count = parent_and_name(pid)[0], count + 1
    return count


class Slurm:
    """Use as a context: at its end every process of it is gone."""

    def __init__(self, s, count=3, cpus=4):
        self.s = s
        self.folder = s.folder / "slurm"
        self.nodes = [f"127.0.0.{i + 2}" for i in range(count)]
        self.daemons = {}
        self.dead_sockets = []  # of coordinators whose node lost its power
        (self.folder / "state").mkdir(parents=True)
        self.folder.chmod(0o755)
        s.env.update({"SLURM_CONF": str(self.folder / "slurm.conf"), "XDG_CONFIG_HOME": str(s.folder / "config"),
                      "PATH": f"{sandbox.BIN}{os.pathsep}{search_path()}"})
        machine = os.uname().nodename.split(".")[0]
        text = CONFIGURATION.format(machine=machine, folder=self.folder, port=nodes.free_port(), user="root")
        for node in self.nodes:
            text += (f"NodeName={node} NodeHostname={machine} NodeAddr={node} Port={nodes.free_port(node)} "
                     f"CPUs={cpus}\n")
        text += "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        (self.folder / "slurm.conf").write_text(text)

    def __enter__(self):
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_):
        self._end()

    def _begin(self):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._start("munged", "--foreground", "--force", f"--socket={self.folder}/munge.sock", f"--key-file={key}",
                    f"--log-file={self.folder}/munged.log", f"--pid-file={self.folder}/munged.pid",
                    f"--seed-file={self.folder}/munged.seed")
        wait_until((self.folder / "munge.sock").exists, self.shown)
        self._start("slurmctld", "-D")
        for node in self.nodes:
            self.start_node(node)
        wait_until(lambda: self.run("sinfo", "-h", "-N", "-o", "%T").stdout.split() == ["idle"] * len(self.nodes),
                   self.shown)

    def _start(self, *words, name=None):
        name = name or words[0]
        with open(self.folder / f"{name}.out", "ab") as out:
            self.daemons[name] = subprocess.Popen(
                [shutil.which(words[0], path=search_path()), *words[1:]], stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, env=self.s.env, cwd=self.folder)

    def start_node(self, node):
        self._start("slurmd", "-D", "-N", node, name=node)

    def _end(self):
        with contextlib.suppress(OSError, subprocess.SubprocessError, AssertionError):
            self.run("scancel", "--signal=KILL", "--user=root")
        self.s.kill_everything()
        # The step daemons have an environment of their own.
        conf = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        while left := [pid for pid in all_pids() if conf in own_environment(pid)]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for daemon in self.daemons.values():
            daemon.wait()
        nodes.remove_dead_sockets(self.s)
        for socket in self.dead_sockets:
            socket.unlink(missing_ok=True)

    def shown(self):
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
                         for path in sorted([*self.folder.glob("*.log"), *self.s.folder.glob("job-*.out")]))

    def run(self, *words, env=None):
        return subprocess.run(words, env={**self.s.env, **(env or {})}, cwd=self.s.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)

    def told(self, *words):
        """What a command that must succeed prints."""
        result = self.run(*words)
        assert result.returncode == 0, f"{words}: {result.stdout}{result.stderr}\n{self.shown()}"
        return result.stdout

    def submit(self, text, *flags):
        """The id of a job whose batch file is this."""
        path = self.s.script("job.sbatch", text)
        return self.told("sbatch", "--parsable", "--output=job-%j.out", "--open-mode=append", *flags, path).strip()

    def field(self, job, name):
        found = re.search(rf"\b{name}=(\S*)", self.told("scontrol", "show", "job", job))
        return found.group(1) if found else None

    def await_field(self, job, name, *values, deadline_s=60):
        wait_until(lambda: self.field(job, name) in values,
                   lambda: f"job {job}: {name} is {self.field(job, name)}, not {values}\n{self.shown()}", deadline_s)

    def output(self, job):
        path = self.s.folder / f"job-{job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def says(self, job, text, deadline_s=60):
        wait_until(lambda: text in self.output(job), lambda: f"{text!r} of job {job}\n{self.shown()}", deadline_s)

    def lose(self, node):
        """The node's power is cut: its slurmd, the step's daemons, and everything that ran below them."""
        pids = [pid for pid in all_pids() if f"SLURMD_NODENAME={node}".encode() in own_environment(pid)]
        assert pids, f"nothing runs on {node}\n{self.shown()}"
        steps = {parent for parent, _ in map(parent_and_name, pids) if "slurmstepd" in parent_and_name(parent)[1]}
        # Children first: the kernel wakes stopped processes whose group loses its last parent (SIGHUP, SIGCONT).
        doomed = [*sorted(pids, key=ancestors, reverse=True), *steps, self.daemons[node].pid]
        for signo in (signal.SIGSTOP, signal.SIGKILL):
            for pid in doomed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signo)
        self.daemons.pop(node).wait()
        if node == self.nodes[0]:
            self.dead_sockets += [sandbox.socket_folder() / f"{job.name}.job" for job in self.s.jobs()]
        self.told("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")

    def bring_back(self, node):
        self.start_node(node)
        self.told("scontrol", "update", f"nodename={node}", "state=resume")

    def pids_of(self, job):
        """Every process of ours that a Slurm job started and that still runs."""
        return [pid for pid in all_pids() if f"SLURM_JOB_ID={job}".encode() in own_environment(pid)]
