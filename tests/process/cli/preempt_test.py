"""A job whose nodes are wanted back: SIGTERM to the front end of a preemptible job."""

import json
import os
import signal

import sandbox
from sandbox import lines_of, wait_until

JOB = """\
name: tiny
nodes: {workers: 2}
preemptible: true
train:
  model: {kind: gpt, layers: 1, width: 16, heads: 2, context: 16}
  data: {kind: text, path: sea.txt}
  optimizer: {kind: adamw, lr: 3e-3}
  batch: {global: 8, micro: 4}
  steps: 1000000
checkpoint: {dir: checkpoints, every: 1000000 steps}
"""
SAVES = "trap 'echo saved; exit 0' TERM\ntouch ready.$RANK\nwhile :; do sleep 0.05; done\n"
DEAF = "trap '' TERM\ntouch ready.$RANK\nwhile :; do sleep 0.05; done\n"


def training(s):
    (s.folder / "sea.txt").write_text("The sea was calm, and the harbour lay still. " * 300)
    return s.script("job.yaml", JOB, 0o644)


def in_training(s, job):
    """It has made a step."""
    def stepped():
        shown = s.run("status", job.name, "--json")
        return shown.returncode == 0 and json.loads(shown.stdout)["step"] > 0
    wait_until(stepped, "a step")


def trains(s, *flags):
    before = s.jobs()
    process = s.start("launch", *flags, training(s))
    job = wait_until(lambda: set(s.jobs()) - set(before), "the job's folder").pop()
    in_training(s, job)
    return process, job


def waits(s, program, *flags):
    process = s.start("launch", "--nproc-per-node", "2", "--preemptible", *flags, s.shell(program))
    wait_until(lambda: all((s.folder / f"ready.{r}").exists() for r in (0, 1)), "both workers run")
    for rank in (0, 1):
        (s.folder / f"ready.{rank}").unlink()
    return process


def end(process):
    return process.communicate(timeout=sandbox.DEADLINE_S)


def training_saves_the_step_it_is_at(s):
    process, job = trains(s, "--requeue-status")
    # A scheduler signals the workers, too.
    for pid, command in sandbox.processes_with(s.mark).items():
        if b"/train-worker " in command:
            os.kill(pid, signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    _, err = end(process)
    assert process.returncode == 75, (process.returncode, err)
    report = json.loads((job / "report.json").read_text())
    assert (report["outcome"], report["exit_status"]) == ("preempted", 75), report
    assert report["first_failure"]["class"] == "preempted", report
    saved = [int(path.name[5:]) for path in (s.folder / "checkpoints").glob("step-*")]
    assert saved == [report["steps"]] and f"step {saved[0]} is saved" in report["reason"], (saved, report)
    again, job = trains(s)
    again.send_signal(signal.SIGINT)
    _, err = end(again)
    assert f"from step {saved[0]}" in err, err
    # No notice: the user stops it.
    assert again.returncode == 128 + signal.SIGINT and "stopped after" in err, (again.returncode, err)


def script_gets_the_signal(s):
    for flags, status in ((["--requeue-status"], 75), ([], 128 + signal.SIGTERM)):
        process = waits(s, SAVES, *flags)
        process.send_signal(signal.SIGTERM)
        out, err = end(process)
        assert lines_of(out, 0) == ["saved"] and lines_of(out, 1) == ["saved"], (out, err)
        assert process.returncode == status and "preempted after" in err, (process.returncode, err)


def second_signal_skips_the_grace(s):
    process = waits(s, DEAF, "--requeue-status", "--grace", "10m")
    process.send_signal(signal.SIGTERM)
    seen = ""
    while "once more" not in seen:
        seen = process.stderr.readline()
        assert seen, "ended after one signal"
    process.send_signal(signal.SIGTERM)
    end(process)
    assert process.returncode == 75 and s.report()["outcome"] == "preempted", (process.returncode, s.report())


sandbox.main(__name__)
