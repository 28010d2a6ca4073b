#!/usr/bin/python3
"""Runs deploy/examples/fashion_mnist.yaml with two workers and says what came of it.

With --chaos a worker is killed half-way, and the final state is compared with an undisturbed run's.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
TRAINCTL = TOP / "build" / "release" / "bin" / "trainctl"
JOB_FILE = TOP / "deploy" / "examples" / "fashion_mnist.yaml"


def say(text=""):
    print(text, flush=True)


class Run:
    """One run of the job; everything it writes lies below its folder."""

    def __init__(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.env = dict(os.environ, XDG_STATE_HOME=str(folder / "state"))
        self.process = None

    def start(self, **popen):
        command = [TRAINCTL, "launch", "--checkpoint-dir", self.checkpoints, JOB_FILE]
        self.process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, **popen)

    def wait(self):
        while True:
            try:
                return self.process.wait()
            except KeyboardInterrupt:  # the launcher has it too, and ends in its own way
                continue

    def job_folder(self):
        return next((self.folder / "state" / "trainctl" / "jobs").glob("*"), None)

    def status(self):
        """What `trainctl status --json` says of the job; None while there is nothing to say."""
        folder = self.job_folder()
        if folder is None:
            return None
        done = subprocess.run([TRAINCTL, "status", "--json", folder.name], env=self.env,
                              capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout else None

    def report(self):
        return json.loads((self.job_folder() / "report.json").read_text())

    def last_checkpoint(self):
        return max(self.checkpoints.glob("step-*"), default=None)

    def digests(self):
        """The digests of the last checkpoint's shards: parameters and optimizer, bit by bit."""
        manifest = json.loads((self.last_checkpoint() / "manifest.json").read_text())
        return [shard["digest"] for shard in manifest["shards"]]


def victim_of(status):
    """The worker to kill: the last one, once half of the steps are done and one is committed."""
    if status is None or not status.get("total_steps") or status.get("recovery_point") is None:
        return None
    running = [w for w in status["workers"] if w["running"]]
    return running[-1] if running and 2 * status["step"] >= status["total_steps"] else None


def kill_in_the_middle(run):
    """Returns what was done, as a sentence, or None if the job was over before."""
    while run.process.poll() is None:
        status = run.status()
        victim = victim_of(status)
        if victim is not None:
            os.kill(victim["pid"], signal.SIGKILL)
            return (f"killed rank {victim['rank']} (pid {victim['pid']}) with SIGKILL after step "
                    f"{status['step']} of {status['total_steps']}; "
                    f"the newest committed step was {status['recovery_point']}")
        time.sleep(0.1)
    return None


def recovery_text(report):
    lines = [f"restarts        {report['restarts']}"]
    for step in report.get("recovery", []):
        parts = [f"{name[:-3].replace('_', ' ')} {value:.0f} ms" for name, value in step.items()
                 if name.endswith("_ms") and value is not None]
        lines.append(f"recovery        {', '.join(parts)}; {step.get('steps_lost', 0)} steps done again")
    return "\n".join(lines)


def summary(run):
    report = run.report()
    shown = os.path.relpath
    return "\n".join([
        f"top-1 accuracy  {100 * report['metrics']['test_top1']:.2f} % of the 10 000 test images",
        f"training        {report['goodput']['seconds_training']:.1f} s, "
        f"{report['samples_per_second']:.0f} samples/s, {report['steps']} steps",
        f"checkpoint      {shown(run.last_checkpoint())}",
        f"logs            {shown(report['log_folder'])}",
        f"report          {shown(run.job_folder() / 'report.json')}",
    ])


NEXT = """What to try next
  scripts/quickstart --chaos                                    kill a worker half-way, compare the results
  {bin}/trainctl launch --nproc-per-node 3 deploy/examples/hello.sh
  {bin}/trainctl launch --help
  scripts/test                                                  set-up, build and all tests"""


def plain(folder):
    run = Run(folder / "plain")
    run.start()
    status = run.wait()
    if status != 0:
        say(f"quickstart: trainctl launch ended with status {status}; its files are in {os.path.relpath(run.folder)}")
        return status
    say()
    say(summary(run))
    say()
    say(NEXT.format(bin=os.path.relpath(TRAINCTL.parent)))
    return 0


def chaos(folder):
    run = Run(folder / "chaos")
    run.start()
    done = []
    killer = threading.Thread(target=lambda: done.append(kill_in_the_middle(run)), daemon=True)
    killer.start()
    status = run.wait()
    killer.join()
    if status != 0 or done[0] is None:
        say(f"quickstart: the launch ended with status {status}, "
            + ("before a worker could be killed" if done[0] is None else done[0]))
        return status or 1
    say()
    say(summary(run))
    say(f"chaos           {done[0]}")
    say(recovery_text(run.report()))
    say()
    say("Now the same job undisturbed, to compare ...")
    calm = Run(folder / "calm")
    with open(calm.folder / "launch.log", "wb") as log:
        calm.start(stdout=log, stderr=log)
        status = calm.wait()
    if status != 0:
        say(f"quickstart: that run ended with status {status}; see {os.path.relpath(calm.folder / 'launch.log')}")
        return status
    equal = run.digests() == calm.digests()
    say(f"final parameters and optimizer state of the two runs: {'bit-identical' if equal else 'DIFFERENT'}")
    for name, digests in (("killed", run.digests()), ("undisturbed", calm.digests())):
        say(f"  {name:12} {' '.join(digests)}")
    return 0 if equal else 1


def main():
    folder = TOP / "build" / "quickstart"
    return chaos(folder) if "--chaos" in sys.argv[1:] else plain(folder)


if __name__ == "__main__":
    sys.exit(main())
