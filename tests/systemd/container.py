"""A Debian tree with our installation in it, booted by systemd-nspawn with a systemd as its process 1."""

import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "process/cli"))
from sandbox import wait_until  # noqa: E402

CGROUPS = pathlib.Path("/sys/fs/cgroup")
# Besides the shared libraries of our programs.
PACKAGES = ["dbus", "dbus-user-session", "libpam-systemd", "libsystemd0", "procps", "systemd", "systemd-sysv"]
TOOLS = ("debootstrap", "systemd-nspawn", "nsenter", "cmake")
REBOOT = 133  # how systemd-nspawn ends when the container asks for a reboot


class Skip(Exception):
    """What this machine cannot show, and why."""


def call(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{words}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def check_machine():
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0:
        raise Skip("it needs root")
    if missing:
        raise Skip(f"{', '.join(missing)} are not installed; scripts/setup --service does it")
    if not re.search(r"^cgroup2 \S+ cgroup2 |^\S+ \S+ cgroup2 ", pathlib.Path("/proc/mounts").read_text(),
                     re.MULTILINE):
        raise Skip("no cgroup hierarchy of version 2 is mounted")


def suite_and_mirror():
    """What this machine installs its own packages from."""
    codename = re.search(r"^VERSION_CODENAME=(\S+)", pathlib.Path("/etc/os-release").read_text(), re.MULTILINE)
    targets = call("apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)",
                   "Created-By: Packages")
    for line in targets.splitlines():
        suite, component, mirror = line.split(" ", 2)
        if codename and suite == codename[1] and component == "main":
            return suite, mirror
    raise Skip("apt's configuration names no mirror for this system's own suite")


def packages_of(programs):
    """Of the shared libraries that they load."""
    libraries = set()
    for program in programs:
        # One that is linked statically is an error to ldd.
        loaded = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        libraries.update(re.findall(r"=> (/\S+)", loaded))
    owners = set()
    for library in libraries:
        for path in (library, os.path.realpath(library), "/usr" + library):
            done = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                owners.add(done.stdout.split(":")[0])
                break
    return sorted(owners)


def make_tree(cache, programs):
    """The folder of a Debian tree that is never changed; made at the first call."""
    suite, mirror = suite_and_mirror()
    packages = sorted({*PACKAGES, *packages_of(programs)})
    mark = hashlib.sha256(" ".join([suite, *packages]).encode()).hexdigest()[:12]
    tree = pathlib.Path(cache) / f"{suite}-{mark}"
    if not tree.is_dir():
        new = tree.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        call("debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, str(new), mirror)
        new.rename(tree)
    return tree


class Container:
    def __init__(self, root, name, binds=()):
        self.root = pathlib.Path(root)
        self.name = name
        self.binds = [f"--bind-ro={path}" for path in binds]
        self.console = self.root.parent / "console.log"
        self.process = None
        self.leader = 0
        # A systemd of the machine's own puts the container into a scope. Without one, we do.
        self.alone = not os.path.isdir("/run/systemd/system")
        self.groups = [folder / name for folder in (CGROUPS, CGROUPS / "unified", CGROUPS / "systemd")
                       if self.alone and (folder / "cgroup.procs").exists()]

    def enter_groups(self):
        for group in self.groups:
            (group / "cgroup.procs").write_text("0")

    def boot(self):
        for group in self.groups:
            group.mkdir(exist_ok=True)
        with open(self.console, "ab") as console:
            self.process = subprocess.Popen(
                ["systemd-nspawn", "--boot", "--register=no", *(["--keep-unit"] if self.alone else []),
                 f"--directory={self.root}", f"--machine={self.name}", "--private-network", "--console=read-only",
                 *self.binds], stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
                preexec_fn=self.enter_groups,
                # Whatever the machine has, the container sees one hierarchy of version 2.
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"})
        wait_until(self.is_up, lambda: f"a booted container:\n{self.shown()}", 60)

    def is_up(self):
        if self.process.poll() is not None:
            raise AssertionError(f"systemd-nspawn ended with status {self.process.returncode}\n{self.shown()}")
        with contextlib.suppress(OSError):
            for child in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
                if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                    self.leader = int(child)
                    return self.run("systemctl", "is-system-running", check=False).strip() in ("running", "degraded")
        return False

    def shown(self):
        return self.console.read_text(errors="replace")[-4000:]

    def words(self, *words):
        return ["nsenter", "--target", str(self.leader), "--all", "--wdns=/root", *words]

    def start(self, *words, **options):
        return subprocess.Popen(self.words(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
                                **options)

    def run(self, *words, check=True, timeout=60):
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{words}: still running after {timeout} s\n{process.communicate()}") from None
        if check and process.returncode != 0:
            raise AssertionError(f"{words}: status {process.returncode}\n{out}\n{err}")
        return out

    def read(self, path):
        return (self.root / str(path).lstrip("/")).read_text(errors="replace")

    def write(self, path, text, mode=0o755):
        target = self.root / path.lstrip("/")
        target.write_text(text)
        target.chmod(mode)
        return path

    def reboot(self):
        self.run("systemctl", "reboot", check=False)
        status = self.process.wait(90)
        assert status == REBOOT, f"status {status}\n{self.shown()}"
        self.remove_groups()
        self.boot()

    def remove_groups(self):
        for top in self.groups:
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    def end(self):
        if self.process is not None and self.process.poll() is None:
            for signo in (signal.SIGTERM, signal.SIGKILL):  # a clean end, or an end
                self.process.send_signal(signo)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(30)
                    break
        # Nothing of it may be left, or the groups could not be removed.
        end = time.monotonic() + 10
        while any(group.is_dir() for group in self.groups) and time.monotonic() < end:
            self.remove_groups()
            time.sleep(0.05)
        left = [str(group) for group in self.groups if group.is_dir()]
        assert not left, f"the container left {left}"
