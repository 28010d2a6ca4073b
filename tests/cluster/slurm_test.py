"""One job as users of Slurm run it: a batch file with one line, on a real Slurm."""

import json
import os
import pathlib
import re
import sys

import slurm
from nodes import WHO, sandbox
from sandbox import expect, lines_of, wait_until
from slurm import Slurm

SOURCE = pathlib.Path(os.environ["TRAINCTL_SOURCE_DIR"])
BATCH_FILE = (SOURCE / "deploy/slurm/train.sbatch").read_text(encoding="utf-8")
TEXT = SOURCE / "deploy/examples/text/harbour.txt"
STEPS = 300
JOB = """\
name: tiny
nodes: {{workers: 1}}
train:
  model: {{kind: gpt, layers: 1, width: 16, heads: 2, context: 16}}
  data: {{kind: text, path: {text}}}
  optimizer: {{kind: adamw, lr: 3e-3}}
  batch: {{global: 12, micro: 2}}
  steps: {steps}
checkpoint: {{dir: {folder}, every: {every} steps, keep: 3}}
"""
# Runs until the test says so; a requeued job's workers are told apart from those before.
WAITS = """echo $$ > "pid.$RANK.$TORCHELASTIC_RESTART_COUNT.${SLURM_RESTART_COUNT:-0}"
while [ ! -e go ]; do sleep 0.02; done
echo "done $RANK $TORCHELASTIC_RESTART_COUNT of $WORLD_SIZE"
"""


# Takes seconds to end when told to.
SAVES_FIRST = """trap 'end' TERM
end() {
  for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; done
  : > told.$RANK
  exit 0
}
"""


def batch(words, nodes=3, tasks=1, no_kill=True):
    """The batch file of deploy/slurm with another command."""
    head, line = BATCH_FILE.rstrip("\n").rsplit("\n", 1)
    srun = line.split("--nnodes")[0]
    if not no_kill:
        head, srun = head.replace("#SBATCH --no-kill\n", ""), srun.replace("--no-kill ", "")
    return (f"{head}\n#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node={tasks}\n"
            f"{srun}{words}\n").replace("#SBATCH --nodes=4\n", "")


def training(s, folder, steps=STEPS, every=10):
    text = JOB.format(text=TEXT, steps=steps, folder=s.folder / folder, every=every)
    return s.script(f"{folder}.yaml", text, 0o644)


def parameters_of(text):
    found = re.findall(r"parameters xxh3-128:(\w+)", text)
    assert len(found) == 1, text
    return found[0]


def undisturbed(box, steps):
    """The parameters that the training of three workers has at its end."""
    alone = box.run("launch", "--nproc-per-node", "3", training(box, "alone", steps))
    expect(alone, 0)
    return parameters_of(alone.stdout + alone.stderr)


def newest_checkpoint(box, folder="checkpoints"):
    return max([int(path.name[5:]) for path in (box.folder / folder).glob("step-*")], default=0)


def all_started(box, ranks, epoch, requeues=0):
    return lambda: all((box.folder / f"pid.{rank}.{epoch}.{requeues}").exists() for rank in range(ranks))


def tasks_of_a_step_need_no_flags(s):
    with Slurm(s) as cluster:
        seen = cluster.run("srun", "--nodes=3", "trainctl", "launch", s.shell(WHO))
        assert seen.returncode == 0, seen.stderr + cluster.shown()
        for rank in range(3):
            assert lines_of(seen.stdout, rank) == [f"{rank} 0 3 {rank} 3 127.0.0.2"], seen.stdout + seen.stderr
        for node in cluster.nodes[1:]:
            assert f"node {node} is in job" in seen.stderr, seen.stderr


def lost_node_is_left_out_of_a_job_that_is_not_killed_for_it(s):
    with Slurm(s) as cluster:
        job = cluster.submit(batch(f"--nnodes 2:3 --lease 1s --max-restarts 0 {training(s, 'checkpoints')}"))
        wait_until(lambda: newest_checkpoint(s) >= 20, cluster.shown)
        cluster.lose(cluster.nodes[2])
        cluster.await_field(job, "JobState", "COMPLETED", "FAILED")
        text = cluster.output(job)
        assert "epoch 1: 2 workers on 127.0.0.2, 127.0.0.3, from step" in text, text
        assert f"step {STEPS}/{STEPS}" in text and " succeeded after" in text, text
        assert cluster.field(job, "JobState") == "COMPLETED" and cluster.field(job, "Restarts") == "0", cluster.shown()


def spare_takes_the_place_of_a_lost_node(s):
    with Slurm(s) as cluster:
        job = cluster.submit(batch(f"--nnodes 2 --lease 1s {s.shell(WAITS)}"))
        wait_until(all_started(s, 2, 0), cluster.shown)
        # The first to come have the places.
        members = re.search(r"epoch 0: 2 workers on 127.0.0.2, (\S+)", cluster.output(job))
        cluster.lose(members.group(1))
        wait_until(all_started(s, 2, 1), cluster.shown)
        (s.folder / "go").touch()
        cluster.says(job, "succeeded after")
        assert lines_of(cluster.output(job), 1) == ["done 1 1 of 2"], cluster.output(job)
        cluster.await_field(job, "JobState", "COMPLETED")


def goes_on_where_it_was(box, cluster, job, steps=STEPS):
    cluster.await_field(job, "JobState", "COMPLETED", "FAILED", deadline_s=150)
    text = cluster.output(job)
    assert cluster.field(job, "JobState") == "COMPLETED" and cluster.field(job, "Restarts") == "1", cluster.shown()
    assert re.search(r"epoch 0: 3 workers on .*, from step \d", text), text
    assert parameters_of(text) == undisturbed(box, steps), text


def job_that_is_killed_for_a_lost_node_is_requeued_and_resumes(s):
    with Slurm(s) as cluster:
        job = cluster.submit(batch(f"--lease 1s {training(s, 'checkpoints')}", no_kill=False))
        wait_until(lambda: newest_checkpoint(s) >= 20, cluster.shown)
        cluster.lose(cluster.nodes[2])
        cluster.await_field(job, "Restarts", "1")
        cluster.bring_back(cluster.nodes[2])
        goes_on_where_it_was(s, cluster, job)


def job_that_lost_its_first_node_is_requeued_by_those_who_are_left(s):
    with Slurm(s) as cluster:
        job = cluster.submit(batch(f"--lease 1s {training(s, 'checkpoints')}"))
        wait_until(lambda: newest_checkpoint(s) >= 20, cluster.shown)
        cluster.lose(cluster.nodes[0])
        cluster.await_field(job, "Restarts", "1", deadline_s=120)
        cluster.bring_back(cluster.nodes[0])
        goes_on_where_it_was(s, cluster, job)


def requeue_on_demand_resumes(s):
    with Slurm(s) as cluster:
        job = cluster.submit(batch(training(s, "checkpoints")))
        wait_until(lambda: newest_checkpoint(s) >= 20, cluster.shown)
        cluster.told("scontrol", "requeue", job)
        goes_on_where_it_was(s, cluster, job)


def outcome_of(job):
    try:
        return json.loads((job / "report.json").read_text())["outcome"]
    except FileNotFoundError:
        return None


def steps_made(box, job):
    shown = box.run("status", job.name, "--json")
    return json.loads(shown.stdout)["step"] if shown.returncode == 0 else 0


def preempted_job_loses_no_step(s):
    steps = 10 * STEPS
    with Slurm(s) as cluster:
        for folder, command in (("cancelled", "scancel"), ("checkpoints", "scontrol requeue")):
            known = set(s.jobs())
            job = cluster.submit(batch(training(s, folder, steps, every=steps)))
            ours = wait_until(lambda known=known: set(s.jobs()) - known, cluster.shown).pop()
            wait_until(lambda ours=ours: steps_made(s, ours) > 0, cluster.shown)
            cluster.told(*command.split(), job)
            saved = wait_until(lambda folder=folder: newest_checkpoint(s, folder), cluster.shown)
            ended = wait_until(lambda ours=ours: outcome_of(ours), cluster.shown)
            report = json.loads((ours / "report.json").read_text())
            assert (ended, report["steps"], saved < steps) == ("preempted", saved, True), report
        goes_on_where_it_was(s, cluster, job, steps)
        assert f", from step {saved}\n" in cluster.output(job), cluster.shown()


def cancelled_job_leaves_nothing(s):
    with Slurm(s) as cluster:
        job = cluster.submit(batch(s.shell(SAVES_FIRST + WAITS)))
        wait_until(all_started(s, 3, 0), cluster.shown)
        assert len(cluster.pids_of(job)) > 9, cluster.shown()
        cluster.told("scancel", job)
        cluster.await_field(job, "JobState", "CANCELLED")
        wait_until(lambda: not cluster.pids_of(job), cluster.shown)
        told = sorted(path.name for path in s.folder.glob("told.*"))
        assert (told, s.outcome()) == (["told.0", "told.1", "told.2"], "preempted"), f"{told}\n{cluster.shown()}"


def several_tasks_on_a_node_are_its_workers(s):
    others_first = 'if [ $RANK = 5 ]; then\nwhile [ $(ls done.* | wc -l) -lt 5 ]; do sleep 0.02; done\nexit 7\nfi\n'
    with Slurm(s) as cluster:
        good = cluster.submit(batch(s.shell(WHO, "who.sh"), tasks=2))
        cluster.await_field(good, "JobState", "COMPLETED", "FAILED")
        assert cluster.field(good, "JobState") == "COMPLETED", cluster.shown()
        for rank in range(6):
            assert lines_of(cluster.output(good), rank) == [f"{rank} {rank % 2} 6 {rank // 2} 3 127.0.0.2"], \
                cluster.shown()
        bad = cluster.submit(batch(s.shell(others_first + "touch done.$RANK\n"), tasks=2))
        cluster.await_field(bad, "JobState", "FAILED")
        failed = re.findall(r"task(?:s)? ([\d,-]+): Exited with exit code (\d+)", cluster.output(bad))
        told = {}
        for tasks, code in failed:
            for first, last in re.findall(r"(\d+)(?:-(\d+))?", tasks):
                told.update(dict.fromkeys(range(int(first), int(last or first) + 1), int(code)))
        # The first task of each node tells of the job, the others of their workers.
        assert told == {0: 1, 2: 1, 4: 1, 5: 7}, f"{told}\n{cluster.shown()}"
        assert cluster.field(bad, "ExitCode") == "7:0", cluster.shown()


def jobs_that_run_at_once_do_not_merge(s):
    script = s.shell('echo "$SLURM_JOB_ID:$RANK of $WORLD_SIZE"\n' + WAITS.replace("pid.", "pid.$SLURM_JOB_ID."))
    with Slurm(s) as cluster:
        text = batch(script).replace("#SBATCH --exclusive\n", "")
        first, second = cluster.submit(text), cluster.submit(text, "--array=1-2")
        wait_until(lambda: len(list(s.folder.glob("pid.*"))) == 9, cluster.shown)
        (s.folder / "go").touch()
        for job in (first, f"{second}_1", f"{second}_2"):
            cluster.await_field(job, "JobState", "COMPLETED", "FAILED")
            assert cluster.field(job, "JobState") == "COMPLETED", cluster.shown()
            own = cluster.field(job, "JobId")
            for rank in range(3):
                assert lines_of(cluster.output(own), rank) == [f"{own}:{rank} of 3", f"done {rank} 0 of 3"], \
                    cluster.shown()


REASON = slurm.why_not()
if REASON is not None:
    print(f"skipped, because {REASON}")
    sys.exit(77)
sandbox.main(__name__)
