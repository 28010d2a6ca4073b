"""What the benchmarks share: places, running ours and the peer, tables."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRAINCTL_BUILD_DIR", SOURCE / "build" / "release"))
BIN = BUILD / "bin"
STAMP = BUILD / "tests" / "bench_stamp"
EXAMPLES = SOURCE / "deploy" / "examples"
TORCHRUN = ["/usr/bin/python3", "-m", "torch.distributed.run"]


class Refused(Exception):
    """The benchmark cannot give a fair or a true figure here; its text says why."""


def need(*paths):
    for path in paths:
        if not pathlib.Path(path).exists():
            raise Refused(f"{path} is not built: scripts/build first")


def need_torch():
    if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode != 0:
        raise Refused("python3-torch is not installed: scripts/setup --tests")


def parse(parser):
    """Its arguments; with --realtime other programs wait, as if the machine were idle."""
    parser.add_argument("--realtime", action="store_true", help="go before all other programs (needs root)")
    args = parser.parse_args()
    if args.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    return args


def need_quiet_machine(limit=0.5):
    load = os.getloadavg()[0] / os.cpu_count()
    if load > limit and os.sched_getscheduler(0) != os.SCHED_RR:
        print(f"note: the machine is busy ({load:.1f} running per core); figures are pessimistic", flush=True)


@contextlib.contextmanager
def scratch():
    """A folder for one measurement; state and logs of jobs lie below it."""
    root = SOURCE / "build" / "bench"
    root.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(folder, **more):
    env = dict(os.environ, XDG_STATE_HOME=str(folder / "state"), **more)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"):
        if name not in more:
            env.pop(name, None)
    return env


def torchrun(workers, *flags):
    """Debian's torchrun 1.13 fails on Python 3.11 unless every rank's streams are listed."""
    each = ",".join(f"{rank}:1" for rank in range(workers))
    return [*TORCHRUN, "--redirects", each, "--tee", each, "--nproc_per_node", str(workers), *flags]


def wait_for(condition, seconds, what, pause=0.001):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(pause)
    raise RuntimeError(f"waited {seconds} s in vain for {what}")


def stamps(folder, epoch, workers):
    """{rank: (ns, pid)} once all workers of the epoch have stamped, else None."""
    found = {}
    for rank in range(workers):
        try:
            ns, pid = (folder / f"{epoch}.{rank}").read_text().split()
        except FileNotFoundError:
            return None
        found[rank] = (int(ns), int(pid))
    return found


def end(process, seconds=40):
    """Ends a launcher that waits for its workers, as a user would with Ctrl-C."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def daemon(folder):
    """A daemon of this user, as if a node had one running; nobody else's may be there."""
    process = subprocess.Popen([BIN / "traind", "--socket", folder / "traind.sock",
                                "--state-dir", folder / "state" / "trainctl"],
                               env=environment(folder), stderr=subprocess.DEVNULL)
    try:
        wait_for((folder / "traind.sock").exists, 10, "traind's socket")
        yield process, str(folder / "traind.sock")
    finally:
        process.terminate()
        process.wait(20)


def launch(folder, *words, env=None, **popen):
    log = open(folder / "launch.log", "ab")
    return subprocess.Popen([BIN / "trainctl", "launch", *map(str, words)], stdin=subprocess.DEVNULL,
                            stdout=log, stderr=log, cwd=SOURCE, env=env or environment(folder), **popen)


def run_job(folder, *words, env=None, seconds=600):
    """Runs a job to its end; returns (report, text that the front end showed)."""
    process = launch(folder, *words, env=env)
    status = process.wait(seconds)
    text = (folder / "launch.log").read_text(errors="replace")
    reports = list((folder / "state" / "trainctl" / "jobs").glob("*/report.json"))
    if status != 0 or len(reports) != 1:
        raise RuntimeError(f"trainctl launch {' '.join(map(str, words))} ended with status {status}:\n{text[-2000:]}")
    return json.loads(reports[0].read_text()), text


class Table:
    """Figure, ours, peer, ratio, must; every row says whether it holds."""

    COLUMNS = ("figure", "ours", "peer", "ratio", "must", "holds")

    def __init__(self):
        self.rows = []

    def add(self, figure, ours, peer="", ratio="", must="", holds=None):
        verdict = {True: "yes", False: "NO", None: ""}[holds]
        self.rows.append((figure, ours, peer, ratio, must, verdict))

    def show(self):
        widths = [max(len(str(r[i])) for r in [self.COLUMNS, *self.rows]) for i in range(len(self.COLUMNS))]
        line = lambda row: "| " + " | ".join(str(c).ljust(w) for c, w in zip(row, widths)) + " |"
        print(line(self.COLUMNS))
        print("|" + "|".join("-" * (w + 2) for w in widths) + "|")
        for row in self.rows:
            print(line(row))
        sys.stdout.flush()
        return all(row[-1] != "NO" for row in self.rows)


def ms(values):
    """Median and worst of nanosecond figures, in milliseconds."""
    return f"{statistics.median(values) / 1e6:.1f} ms (worst {max(values) / 1e6:.1f})"


def main(measure):
    """Runs one benchmark as a program: exit status 0 all musts hold, 1 one does not, 3 refused."""
    try:
        return 0 if measure().show() else 1
    except Refused as reason:
        print(f"refused, because {reason}")
        return 3
