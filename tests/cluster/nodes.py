"""Several nodes of one job: each is its own trainctl with its own daemon, told apart by name and
address. On one machine they have addresses of the loopback interface."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "process/cli"))
import sandbox  # noqa: E402
from sandbox import wait_until  # noqa: E402

WHO = 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_ADDR"\n'
# Runs until the test says so, or fails there.
WAITS = """echo $$ > pid.$RANK.$TORCHELASTIC_RESTART_COUNT
while [ ! -e go ]; do sleep 0.02; done
echo "done $RANK $TORCHELASTIC_RESTART_COUNT of $WORLD_SIZE"
"""


def free_port(address="127.0.0.1"):
    with socket.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


class Node:
    """What the user typed on one node, with its output in files that can be read while it runs."""

    def __init__(self, s, name, words, env=None, prefix=()):
        self.name = name
        self.out_path = s.folder / f"{name}.out"
        self.err_path = s.folder / f"{name}.err"
        with open(self.out_path, "w") as out, open(self.err_path, "w") as err:
            self.process = subprocess.Popen(
                [*prefix, sandbox.TRAINCTL, *words], cwd=s.folder, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, env={**s.env, **(env or {}), "NODE_MARK": name})

    @property
    def out(self):
        return self.out_path.read_text(errors="replace")

    @property
    def err(self):
        return self.err_path.read_text(errors="replace")

    def shown(self):
        return f"--- {self.name} (status {self.process.poll()})\n{self.out}\n{self.err}"

    def wait(self, deadline_s=60):
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {deadline_s} s\n{self.shown()}") from None

    def says(self, text, deadline_s=60):
        wait_until(lambda: text in self.err or text in self.out, lambda: f"{text!r} of {self.shown()}",
                   deadline_s)

    def pids(self, *programs):
        """Of this node's processes, those that run one of these programs; all of ours if none is named."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if f"NODE_MARK={self.name}".encode() not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                program = os.path.basename(os.readlink(entry / "exe"))
                if program in (programs or ("trainctl", "traind", "train-shim", "train-coordinator")):
                    found.append(int(entry.name))
        return found

    def kill(self, *programs):
        """As if the power of these processes were cut at once."""
        pids = self.pids(*programs)
        for signo in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signo)
        return pids


def remove_dead_sockets(s):
    """What a node that lost its power leaves; daemons sweep it up when it is old."""
    for job in s.jobs():
        for path in sandbox.socket_folder().glob(f"{job.name}.*shim*"):
            path.unlink()


class Loopback:
    """Nodes of one job on 127.0.0.2, 127.0.0.3, …; node 0 coordinates."""

    def __init__(self, s, count, nnodes=None):
        self.s = s
        s.env["XDG_CONFIG_HOME"] = str(s.folder / "config")
        self.count = count
        self.nnodes = nnodes or str(count)
        self.port = free_port("127.0.0.2")
        self.nodes = []

    def start(self, index, *words, env=None, name=None):
        node = Node(self.s, name or f"n{index}",
                    ["launch", "--nnodes", self.nnodes, "--node-rank", str(index), "--rdzv-endpoint",
                     f"127.0.0.2:{self.port}", "--local-addr", f"127.0.0.{index + 2}",
                     "--node-name", name or f"n{index}", *words], env)
        self.nodes.append(node)
        return node

    def start_all(self, *words, **options):
        return [self.start(i, *words, **options) for i in range(self.count)]

    def shown(self):
        return "\n".join(node.shown() for node in self.nodes)


def expect_all(nodes, status, deadline_s=60):
    for node in nodes:
        node.wait(deadline_s)
    assert [node.process.returncode for node in nodes] == [status] * len(nodes), "\n".join(
        node.shown() for node in nodes)
