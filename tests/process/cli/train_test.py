"""The built-in trainer from a job file: what is shown, and that a killed worker changes nothing."""

import contextlib
import json
import os
import pathlib
import pty
import re
import signal
import subprocess

import sandbox
from sandbox import expect, wait_until

JOB = """\
name: tiny
nodes: {workers: 2}
train:
  model: {kind: gpt, layers: 1, width: 16, heads: 2, context: 16}
  data: {kind: text, path: sea.txt}
  optimizer: {kind: adamw, lr: 3e-3}
  batch: {global: 8, micro: 4}
  steps: STEPS
checkpoint: {dir: DIR, every: 20 steps, keep: 2}
"""


def job_file(s, steps, folder="checkpoints"):
    (s.folder / "sea.txt").write_text("The sea was calm, and the harbour lay still. " * 300)
    return s.script("job.yaml", JOB.replace("STEPS", str(steps)).replace("DIR", folder), 0o644)


def parameters_of(text):
    found = [line for line in text.splitlines() if "parameters xxh3-128:" in line]
    assert len(found) == 1, text
    return found[0].split("xxh3-128:")[1].split()[0]


def progress_is_plain_lines_without_a_terminal(s):
    result = s.run("launch", job_file(s, 60))
    expect(result, 0, "step 60/60", "samples/s", "validation", "checkpoint", "report")
    assert "\x1b" not in result.stderr and "\r" not in result.stderr, result.stderr
    assert (s.folder / "checkpoints/step-000000060/manifest.json").exists()


def progress_is_json_on_request(s):
    result = s.run("launch", "--json", job_file(s, 60))
    expect(result, 0)
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    progress = [o for o in objects if o["type"] == "progress"]
    assert progress[-1]["step"] == 60 and progress[-1]["total_steps"] == 60, progress
    assert any(o["type"] == "metric" for o in objects)


def progress_is_redrawn_on_a_terminal(s):
    path = job_file(s, 200)
    for no_colour in (False, True):
        pid, master = pty.fork()
        if pid == 0:
            os.chdir(s.folder)
            env = {**s.env, "TERM": "xterm", **({"NO_COLOR": "1"} if no_colour else {})}
            os.execve(sandbox.TRAINCTL,
                      [sandbox.TRAINCTL, "launch", "--checkpoint-dir", f"c{no_colour}", path], env)
        seen = b""
        try:
            while chunk := os.read(master, 65536):
                seen += chunk
        except OSError:
            pass  # the terminal ends with its last user
        os.close(master)
        _, status = os.waitpid(pid, 0)
        assert status == 0, seen
        assert b"[" in seen and b"\r\x1b[K" in seen and b"step 200/200" in seen, seen
        assert not (no_colour and b"\x1b[3" in seen), seen


def killed_worker_changes_no_bit(s):
    path = job_file(s, 400)
    undisturbed = s.run("launch", "--checkpoint-dir", "a", path)
    expect(undisturbed, 0)
    process = s.start("launch", "--name", "hit", "--checkpoint-dir", "b", path)
    wait_until(lambda: (s.folder / "b/step-000000040").exists(), "a checkpoint")
    workers = json.loads(s.run("status", "--json", "hit").stdout)["workers"]
    os.kill(workers[1]["pid"], signal.SIGKILL)
    _, err = process.communicate(timeout=sandbox.DEADLINE_S)
    assert process.returncode == 0, err
    assert parameters_of(err) == parameters_of(undisturbed.stderr), err
    report = json.loads(next(j for j in s.jobs() if j.name.startswith("hit-"))
                        .joinpath("report.json").read_text())
    assert report["restarts"] == 1 and len(report["epochs"]) == 2, report


def training_goes_on_after_everything_died(s):
    path = job_file(s, 400)
    undisturbed = s.run("launch", "--checkpoint-dir", "a", path)
    expect(undisturbed, 0)
    s.run("submit", "--name", "hit", "--checkpoint-dir", "b", path)
    wait_until(lambda: (s.folder / "b/step-000000040").exists(), "a checkpoint")
    s.kill_everything()
    resumed = s.run("resume", "hit")
    expect(resumed, 0)
    assert parameters_of(resumed.stderr) == parameters_of(undisturbed.stderr), resumed.stderr
    report = json.loads(next(j for j in s.jobs() if j.name.startswith("hit-"))
                        .joinpath("report.json").read_text())
    assert report["epochs"][-1]["resume_step"] >= 40, report


def result_that_cannot_be_saved_is_a_failure_of_the_disk(s):
    own = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    if os.geteuid() != 0 or own.returncode != 0:
        raise sandbox.Skip(f"a file system of its own needs root, and no chroot: {own.stderr.strip()}")
    mount = s.folder / "small"
    mount.mkdir()
    # Room for the folders of both workers' shards, and for no shard.
    script = f'mount -t tmpfs -o size=8k tmpfs {mount} && exec "$@"'
    result = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", sandbox.TRAINCTL, "launch", job_file(s, 60, f"{mount}/c")],
        env=s.env, cwd=s.folder, capture_output=True, text=True, timeout=sandbox.DEADLINE_S, check=False)
    expect(result, 1, "No space left on device", "the state after the last step, 60, could not be saved", "disk")
    assert result.stderr.count("training goes on") == 1, result.stderr
    report = s.report()
    assert report["first_failure"]["class"] == "disk" and report["first_failure"]["rank"] == 0, report
    assert report["restarts"] == 0 and report["checkpoints"] == [] and "validation_loss" in report["metrics"], report


def missing_data_is_a_user_error_without_restarts(s):
    path = job_file(s, 10)
    (s.folder / "sea.txt").unlink()
    expect(s.run("launch", path), 1, "sea.txt")
    assert s.report()["restarts"] == 0, s.report()


def stopped_rank_is_blamed_not_those_that_wait_for_it(s):
    path = pathlib.Path(job_file(s, 1000000))
    # Without checkpoints, whose parts the others may also wait for.
    path.write_text(path.read_text().replace("checkpoint:", "#"))
    process = s.start("launch", "--max-restarts", "0", "--hang-timeout", "2s", path)

    def rank_1():
        for pid, command in sandbox.processes_with(s.mark).items():
            with contextlib.suppress(OSError):
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if b"train-worker" in command and b"RANK=1" in environment:
                    return pid
        return None

    wait_until(lambda: re.search(r"progress +step [1-9]", s.run("status", "tiny").stdout),
               "the first steps")
    os.kill(wait_until(rank_1, "rank 1"), signal.SIGSTOP)
    _, err = process.communicate(timeout=sandbox.DEADLINE_S)
    expect(subprocess.CompletedProcess("launch", process.returncode, "", err), 1,
           "rank 1 on ", "is stopped by a signal", "class:      hang")
    failure = s.report()["first_failure"]
    assert failure["class"] == "hang" and failure["rank"] == 1, failure
    waits = (s.job() / "logs/0/0/hang.txt").read_text()
    assert "collectives:" in waits and "not finished" in waits, waits


sandbox.main(__name__)
