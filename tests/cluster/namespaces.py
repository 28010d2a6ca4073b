"""Machines of a small network: namespaces with addresses and interfaces of their own, joined by a bridge
each for their first and their second network. No name server."""

import contextlib
import os
import subprocess


def run(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True)


def why_not():
    """Why namespaces cannot be had here; None if they can."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    name = f"tcprobe{os.getpid()}"
    try:
        run("ip", "netns", "add", name)
        made = run("ip", "-n", name, "link", "add", "a0", "type", "veth", "peer", "name", "b0", check=False)
        run("ip", "netns", "del", name)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"network namespaces are not permitted ({getattr(error, 'stderr', error)})".strip()
    return None if made.returncode == 0 else f"no virtual interfaces ({made.stderr.strip()})"


class Network:
    """`count` machines: machine i has 10.77.1.(i+1) on eth0 and 10.77.2.(i+1) on eth1.

    With a decoy each also has, as its first interface, a bridge as container engines make it: the same
    address on every machine, leading nowhere."""

    def __init__(self, count, decoy=None):
        self.decoy = decoy
        self.tag = f"tc{os.getpid() % 100000}"
        self.hub = f"{self.tag}hub"
        self.machines = [f"{self.tag}m{i}" for i in range(count)]
        try:
            self._make()
        except Exception:
            self.remove()
            raise

    def _make(self):
        run("ip", "netns", "add", self.hub)
        for network in (1, 2):
            run("ip", "-n", self.hub, "link", "add", f"br{network}", "type", "bridge")
            run("ip", "-n", self.hub, "link", "set", f"br{network}", "up")
        for i, machine in enumerate(self.machines):
            run("ip", "netns", "add", machine)
            run("ip", "-n", machine, "link", "set", "lo", "up")
            if self.decoy is not None:
                run("ip", "-n", machine, "link", "add", "docker0", "type", "bridge")
                run("ip", "-n", machine, "addr", "add", f"{self.decoy}/16", "dev", "docker0")
                run("ip", "-n", machine, "link", "set", "docker0", "up")
            for network in (1, 2):
                port = f"p{network}m{i}"
                run("ip", "-n", self.hub, "link", "add", port, "type", "veth", "peer", "name",
                    f"eth{network - 1}", "netns", machine)
                run("ip", "-n", self.hub, "link", "set", port, "master", f"br{network}")
                run("ip", "-n", self.hub, "link", "set", port, "up")
                run("ip", "-n", machine, "addr", "add", f"{self.address(i, network)}/24", "dev",
                    f"eth{network - 1}")
                run("ip", "-n", machine, "link", "set", f"eth{network - 1}", "up")

    @staticmethod
    def address(index, network=1):
        return f"10.77.{network}.{index + 1}"

    def inside(self, index):
        """What comes before a command that is to run on a machine."""
        return ["ip", "netns", "exec", self.machines[index]]

    def link(self, index, state, network=1):
        run("ip", "-n", self.hub, "link", "set", f"p{network}m{index}", state)

    def remove(self):
        for name in [*self.machines, self.hub]:
            with contextlib.suppress(OSError):
                run("ip", "netns", "del", name, check=False)
