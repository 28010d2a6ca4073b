"""Unmodified PyTorch scripts under trainctl launch, with Debian's python3-torch."""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "cluster"))
import nodes  # noqa: E402
from nodes import sandbox  # noqa: E402
from sandbox import expect, lines_of  # noqa: E402

PYTHON = "/usr/bin/python3"
SCRIPTS = pathlib.Path(__file__).parent / "scripts"
ENV = {"PYTHON_EXEC": PYTHON}
TORCH_DEADLINE_S = 150


def launch(s, *words, **options):
    return s.run("launch", "--nproc-per-node", "2", *words, env=ENV, deadline_s=TORCH_DEADLINE_S,
                 **options)


def parameters_of(result):
    found = [line for line in lines_of(result.stdout, 0) if line.startswith("parameters ")]
    assert len(found) == 1, (result.stdout, result.stderr)
    return found[0]


def ddp_script_runs_and_a_kill_changes_nothing(s):
    script = str(SCRIPTS / "ddp_train.py")
    undisturbed = launch(s, script, "--checkpoint", "a.pt")
    expect(undisturbed, 0)
    killed = launch(s, "--max-restarts", "1", script, "--checkpoint", "b.pt", "--die-at", "13")
    expect(killed, 0, "KILL")
    assert lines_of(killed.stdout, 0)[:2] == ["start at 0", "start at 10"], killed.stdout
    assert parameters_of(killed) == parameters_of(undisturbed)


def ddp_on_two_nodes_gives_what_one_gives(s):
    script = str(SCRIPTS / "ddp_train.py")
    alone = launch(s, script, "--checkpoint", "a.pt")
    expect(alone, 0)
    cluster = nodes.Loopback(s, 2)
    pair = cluster.start_all("--max-restarts", "1", script, "--checkpoint", "b.pt", "--die-at", "13", env=ENV)
    nodes.expect_all(pair, 0, TORCH_DEADLINE_S)
    assert lines_of(pair[0].out, 0)[:2] == ["start at 0", "start at 10"], cluster.shown()
    last = [line for line in lines_of(pair[0].out, 0) if line.startswith("parameters ")]
    assert last == [parameters_of(alone)], cluster.shown()


def exception_comes_through_error_json(s):
    result = launch(s, str(SCRIPTS / "record_failure.py"))
    expect(result, 1, "RuntimeError: loss is not finite at step 17", "rank 1")
    failure = s.report()["first_failure"]
    assert failure["rank"] == 1 and "loss is not finite at step 17" in failure["message"], failure
    assert (s.job() / "logs/0/1/error.json").exists()


def script_of_the_old_launcher_gets_its_argument(s):
    result = launch(s, "--local-rank-arg=local_rank", str(SCRIPTS / "legacy_launch.py"), "--lr", "0.5")
    expect(result, 0)
    for rank in (0, 1):
        assert lines_of(result.stdout, rank) == [f"local rank {rank} lr 0.5 sum 3"], result.stdout


def twenty_jobs_started_at_once_all_run(s):
    top = pathlib.Path(os.environ["TRAINCTL_SOURCE_DIR"])
    jobs = [s.start("launch", "--nproc-per-node", "2", str(top / "deploy/examples/ddp.py"), "--steps", "5",
                    env=ENV) for _ in range(20)]
    ends = [job.communicate(timeout=TORCH_DEADLINE_S) for job in jobs]
    failed = [end for job, end in zip(jobs, ends) if job.returncode != 0]
    assert not failed, failed


def example_script_runs(s):
    top = pathlib.Path(os.environ["TRAINCTL_SOURCE_DIR"])
    expect(launch(s, str(top / "deploy/examples/ddp.py"), "--steps", "20"), 0)


if subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True,
                  check=False).returncode != 0:
    print("skipped, because python3-torch is not installed")
    sys.exit(77)
sandbox.main(__name__)
