"""What every test of the front end needs: a place of its own, the real programs, and the proof that
nothing is left when it is over."""

import contextlib
import inspect
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid

BIN = pathlib.Path(os.environ["TRAINCTL_BIN_DIR"])
TRAINCTL = str(BIN / "trainctl")
# Sanitizers keep memory that was freed, so bounds on memory mean nothing there.
CACHE = BIN.parent / "CMakeCache.txt"  # none in a bundle or an installed tree
SANITIZED = CACHE.exists() and "TRAINCTL_SANITIZE:STRING=\n" not in CACHE.read_text(encoding="utf-8")
DEADLINE_S = 60
MARK = "TRAINCTL_TEST_MARK"


class Skip(Exception):
    """What this machine cannot show, and why."""


def wait_until(condition, what, deadline_s=DEADLINE_S):
    """Waits for a condition, never for a time. Returns its first true value."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {deadline_s} s: {what() if callable(what) else what}")


def socket_folder():
    uid = os.geteuid()
    return pathlib.Path("/run/trainctl" if uid == 0 else f"/tmp/trainctl-{uid}")


def processes_with(mark):
    """Every process whose environment holds the mark: ours, and what they started."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if state != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
    return found


class Sandbox:
    """A folder with programs, state and temporary files of one test."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trainctl-test-"))
        self.mark = uuid.uuid4().hex
        self.tmp = self.folder / "tmp"
        self.tmp.mkdir()
        self.sockets_before = self.sockets()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("PET_")}
        self.env.update({MARK: self.mark, "XDG_STATE_HOME": str(self.folder / "state"),
                         "TMPDIR": str(self.tmp), "HOME": str(self.folder)})
        self.env.pop("NO_COLOR", None)

    def sockets(self):
        folder = socket_folder()
        return set(os.listdir(folder)) if folder.is_dir() else set()

    def jobs(self):
        folder = self.folder / "state/trainctl/jobs"
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def job(self):
        jobs = self.jobs()
        assert len(jobs) == 1, jobs
        return jobs[0]

    def report(self):
        return json.loads((self.job() / "report.json").read_text())

    def outcome(self):
        """What the job ended with; None while it runs (its report is written all along)."""
        try:
            return self.report()["outcome"]
        except FileNotFoundError:
            return None

    def script(self, name, text, mode=0o755):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def shell(self, text, name="work.sh"):
        return self.script(name, "#!/bin/sh\n" + text)

    def start(self, *words, env=None, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([TRAINCTL, *words], env={**self.env, **(env or {})},
                                cwd=self.folder, stdin=subprocess.DEVNULL, text=True, **options)

    def run(self, *words, env=None, deadline_s=DEADLINE_S, **options):
        process = self.start(*words, env=env, **options)
        try:
            out, err = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{words}: still running after {deadline_s} s\n{out}\n{err}")
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def check_nothing_is_left(self):
        wait_until(lambda: not processes_with(self.mark),
                   lambda: f"processes are left: {processes_with(self.mark)}", 30)
        # Sockets of other tests come and go; ours carry our jobs' ids.
        ids = [job.name for job in self.jobs()]
        left = [s for s in self.sockets() - self.sockets_before if any(s.startswith(i) for i in ids)]
        assert not left, f"sockets are left in {socket_folder()}: {left}"
        assert not os.listdir(self.tmp), f"temporary files are left: {os.listdir(self.tmp)}"

    def kill_everything(self):
        """As a machine that loses its power; what is started again meanwhile dies too."""
        while living := processes_with(self.mark):
            for pid in living:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def remove(self):
        self.kill_everything()
        shutil.rmtree(self.folder, ignore_errors=True)


def expect(result, status, *err_parts):
    """The exit status is this, and stderr says each of these."""
    shown = f"{result.args}\nstatus {result.returncode}\nstdout:\n{result.stdout}\nstderr:\n{result.stderr}"
    assert result.returncode == status, f"expected status {status}\n{shown}"
    for part in err_parts:
        assert part in result.stderr, f"stderr does not say {part!r}\n{shown}"


def lines_of(text, rank):
    """The lines of one rank, without their prefix."""
    marker = f":{rank}] "
    return [line.split(marker, 1)[1] for line in text.splitlines()
            if line.startswith("[") and marker in line]


def main(module_name):
    """Runs each function of the module whose only parameter is `s`, in a sandbox of its own; names on
    the command line choose some."""
    tests = [f for f in vars(sys.modules[module_name]).values()
             if inspect.isfunction(f) and f.__module__ == module_name
             and list(inspect.signature(f).parameters) == ["s"]]
    if not (BIN / "trainctl").exists() or not (BIN / "traind").exists():
        print(f"skipped, because {BIN} holds no trainctl and traind")
        sys.exit(77)
    chosen = [t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]]
    failed = 0
    for test in chosen:
        sandbox = Sandbox()
        began = time.monotonic()
        try:
            test(sandbox)
            sandbox.check_nothing_is_left()
            print(f"ok      {test.__name__} ({time.monotonic() - began:.2f} s)", flush=True)
        except Skip as reason:
            print(f"skipped {test.__name__}, because {reason}", flush=True)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print(f"FAILED  {test.__name__}", flush=True)
            traceback.print_exc()
            for job in sandbox.jobs():
                for log in ("traind.log", "coordinator.log", "shim.log"):
                    if (job / log).exists():
                        print(f"--- {job / log}\n{(job / log).read_text(errors='replace')[-4000:]}")
        finally:
            sandbox.remove()
    print(f"{len(chosen) - failed} of {len(chosen)} passed")
    sys.exit(1 if failed else 0)
