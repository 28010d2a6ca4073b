"""What a failed job says: who caused it, of which class, and what it ends with."""

import json
import os
import pathlib
import signal

import sandbox
from sandbox import Skip, expect, wait_until

WAIT = "while [ ! -e go ]; do echo waits; sleep 0.1; done\n"
FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")


def first_failure(s, failure_class, rank=None):
    failure = s.report()["first_failure"]
    assert failure["class"] == failure_class, failure
    assert rank is None or failure["rank"] == rank, failure
    return failure


def rank_that_hangs_is_named_with_where_it_is(s):
    script = s.script("train.py", "import os, time\n"
                      "def waits_for_ever():\n  time.sleep(1000)\n"
                      "if os.environ['RANK'] == '1': waits_for_ever()\n"
                      "while True:\n  print('alive', flush=True)\n  time.sleep(0.1)\n", 0o644)
    result = s.run("launch", "--nproc-per-node", "2", "--hang-timeout", "1s", script)
    expect(result, 1, "rank 1 on ", "has printed nothing and used no processor for", "class:      hang",
           "waits_for_ever")
    first_failure(s, "hang", rank=1)
    for rank in (0, 1):
        assert "thread" in (s.job() / f"logs/0/{rank}/hang.txt").read_text()


def stopped_rank_is_named_and_restarted(s):
    program = s.shell('[ "$TRAINCTL_EPOCH" = 1 ] && exit 0\necho $$ > pid.$RANK.tmp; '
                      'mv pid.$RANK.tmp pid.$RANK\n' + WAIT)
    process = s.start("launch", "--nproc-per-node", "2", "--max-restarts", "1", "--hang-timeout", "1s",
                      program)
    pid = int(wait_until(lambda: (s.folder / "pid.1").exists() and (s.folder / "pid.1").read_text(),
                         "rank 1"))
    os.kill(pid, signal.SIGSTOP)
    _, err = process.communicate(timeout=sandbox.DEADLINE_S)
    assert process.returncode == 0, err
    assert "is stopped by a signal" in err, err
    first_failure(s, "hang", rank=1)
    assert s.report()["restarts"] == 1


def rank_that_is_killed_for_memory_is_named(s):
    script = s.script("train.py", "import os, time\n"
                      "if os.environ['RANK'] == '1': x = bytearray(300_000_000)\n"
                      "time.sleep(1000)\n", 0o644)
    result = s.run("launch", "--nproc-per-node", "2", "--memory-limit", "120MB", script)
    if "limit the memory" in result.stderr:
        raise Skip("memory cannot be limited here")
    expect(result, 1, "class:      out of memory", "SIGKILL", "ut of memory")
    first_failure(s, "out of memory", rank=1)


def limit_that_cannot_be_read_is_refused(s):
    for value in ("much", "-1GiB", "0", "1e400"):
        expect(s.run("launch", "--memory-limit", value, "/bin/true"), 2, "--memory-limit", "64GiB")
    expect(s.run("launch", "--process-limit", "0", "/bin/true"), 2, "--process-limit")


def process_that_cannot_be_killed_ends_the_job_and_is_named(s):
    folder = FREEZER / f"trainctl-test.{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        raise Skip("nothing can be frozen here") from error
    try:
        program = s.shell("echo $$ > pid.tmp; mv pid.tmp pid\n" + WAIT)
        process = s.start("launch", "--grace", "0s", program)
        pid = wait_until(lambda: (s.folder / "pid").exists() and (s.folder / "pid").read_text(), "it")
        (folder / "cgroup.procs").write_text(pid)
        (folder / "freezer.state").write_text("FROZEN")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=sandbox.DEADLINE_S)
        assert f"pid {pid.strip()} (" in err and "SIGKILL does not end" in err, err
        first_failure(s, "hardware")
    finally:
        (folder / "freezer.state").write_text("THAWED")
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), "the thaw")
        folder.rmdir()


def events_and_report_tell_what_happened(s):
    program = s.shell('[ "$TRAINCTL_EPOCH" = 1 ] || exit 3\n')
    expect(s.run("launch", "--name", "told", "--max-restarts", "1", program), 0)
    events = s.run("events", "told")
    expect(events, 0)
    for part in ("the coordinator started", "epoch 0: 1 worker", "failed (worker)", "exited with code 3",
                 "epoch 1: 1 worker", "succeeded, exit status 0"):
        assert part in events.stdout, (part, events.stdout)
    objects = [json.loads(line) for line in s.run("events", "--json", "told").stdout.splitlines()]
    assert all(o["schema"] == 1 and o["type"] == "event" for o in objects), objects
    failed = [o for o in objects if o["event"] == "failed"]
    assert failed[0]["class"] == "worker" and failed[0]["rank"] == 0, failed
    page = (s.job() / "report.html").read_text()  # written when the job ended
    assert "told" in page and "succeeded" in page, page
    (s.job() / "report.html").unlink()
    report = s.run("report", "told")
    expect(report, 0)
    assert str(s.job() / "report.html") in report.stdout and (s.job() / "report.html").exists()
    trace = json.loads((s.job() / "timeline.json").read_text())
    assert {"epoch 0", "epoch 1"} <= {e["name"] for e in trace["traceEvents"]}, trace
    for verb in ("events", "report"):
        expect(s.run(verb, "none-of-this-name"), 3)


def chaos_kills_ranks_and_the_job_survives(s):
    program = s.shell('echo "epoch $TRAINCTL_EPOCH"; [ "$TRAINCTL_EPOCH" = 2 ] && exit 0\n' + WAIT)
    process = s.start("launch", "--name", "hit", "--nproc-per-node", "3", "--max-restarts", "9", program)
    wait_until(lambda: "running" in s.run("list").stdout, "the job runs")
    expect(s.run("chaos", "hit"), 2, "--kill-rank")
    expect(s.run("chaos", "hit", "--kill-rank", "7"), 2, "there is no rank 7")
    result = s.run("chaos", "hit", "--kill-rank", "any", "--every", "100ms", "--times", "2")
    expect(result, 0)
    out, err = process.communicate(timeout=sandbox.DEADLINE_S)
    assert process.returncode == 0, err
    assert result.stdout.count("killed rank") == 2, result.stdout
    assert s.report()["restarts"] == 2
    assert s.report()["first_failure"]["signal"] == 9


def chaos_delays_a_rank_which_then_goes_on(s):
    program = s.shell('echo $$ > pid.tmp; mv pid.tmp pid\n' + WAIT + "echo done\n")
    process = s.start("launch", "--name", "slow", program)
    pid = wait_until(lambda: (s.folder / "pid").exists() and (s.folder / "pid").read_text().strip(), "it")
    wait_until(lambda: "running" in s.run("list").stdout, "the job runs")
    state = lambda: pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    chaos = s.start("chaos", "slow", "--stop-rank", "0", "--delay", "500ms")
    wait_until(lambda: state() == "T", "it is stopped")
    out, err = chaos.communicate(timeout=sandbox.DEADLINE_S)
    assert chaos.returncode == 0 and out.splitlines() == ["stopped rank 0 of epoch 0", "continued rank 0 of epoch 0"], err
    wait_until(lambda: state() != "T", "it goes on")
    (s.folder / "go").touch()
    out, err = process.communicate(timeout=sandbox.DEADLINE_S)
    assert process.returncode == 0 and s.report()["restarts"] == 0, err
    for flags in ((), ("--delay", "soon"), ("--kill-rank", "0", "--delay", "1s"), ("--kill-node", "a", "--kill-rank", "0")):
        expect(s.run("chaos", "slow", *flags), 2, "--")


def the_node_of_the_coordinator_is_not_killed(s):
    process = s.start("launch", "--name", "alone", s.shell(WAIT))
    wait_until(lambda: "running" in s.run("list").stdout, "the job runs")
    expect(s.run("chaos", "alone", "--kill-node", "any"), 5, "runs the job's coordinator")
    (s.folder / "go").touch()
    assert process.wait(sandbox.DEADLINE_S) == 0


def signal_goes_to_the_ranks_that_are_named(s):
    program = s.shell("trap 'echo got it; exit 0' USR1\n" + WAIT)
    process = s.start("launch", "--name", "some", "--nproc-per-node", "2", program)
    wait_until(lambda: "running" in s.run("list").stdout, "the job runs")
    wait_until(lambda: all("waits" in (s.job() / f"logs/0/{r}/stdout.log").read_text() for r in (0, 1)),
               "both wait")
    expect(s.run("signal", "some", "USR1", "--rank", "1"), 0, "to rank 1")
    wait_until(lambda: "got it" in (s.job() / "logs/0/1/stdout.log").read_text(), "rank 1 got it")
    assert "got it" not in (s.job() / "logs/0/0/stdout.log").read_text()
    (s.folder / "go").touch()
    assert process.wait(sandbox.DEADLINE_S) == 0


# What rank 1 of 2 does; flags; then exit status, class, and what the report says of the culprit.
MATRIX = (
    ("exit 7", (), 1, "worker", {"code": 7, "signal": None}),
    ("exit 7", ("--propagate-exit-code",), 7, "worker", {"code": 7}),
    ("exit 255", (), 1, "worker", {"code": 255, "signal": None}),
    ("exit 255", ("--propagate-exit-code",), 255, "worker", {"code": 255}),
    ("exit 255", ("--requeue-status",), 1, "worker", {"code": 255}),
    ("kill -SEGV $$", (), 1, "worker", {"code": None, "signal": signal.SIGSEGV}),
    ("kill -SEGV $$", ("--propagate-exit-code",), 128 + signal.SIGSEGV, "worker", {"signal": signal.SIGSEGV}),
    ("kill -KILL $$", (), 1, "worker", {"code": None, "signal": signal.SIGKILL}),
    ("exec python3 -c 'raise MemoryError'", (), 1, "out of memory", {"code": 1}),
    ("echo 'torch.OutOfMemoryError: CUDA out of memory.' >&2; exit 1", (), 1, "GPU out of memory", {"code": 1}),
    ("exec python3 -c 'import no_such_module'", (), 1, "user error", {"code": 1}),
    ("exec python3 -c 'import no_such_module'", ("--requeue-status",), 93, "user error", {"code": 1}),
    ("no-such-program", (), 1, "user error", {"code": 127}),
    ("exec python3 no-such-file.py", (), 1, "user error", {"code": 2}),
)


def every_failure_has_its_status_class_and_culprit(s):
    for number, (action, flags, status, failure_class, told) in enumerate(MATRIX):
        program = s.shell(f'[ "$RANK" = 1 ] || exec sleep 100\nulimit -c 0\n{action}\n', f"work{number}.sh")
        name = f"row{number}"
        result = s.run("launch", "--name", name, "--nproc-per-node", "2", "--grace", "1s", *flags, program)
        expect(result, status, f"class:      {failure_class}")
        job = next(job for job in s.jobs() if job.name.startswith(f"{name}-"))
        report = json.loads((job / "report.json").read_text())
        failure = report["first_failure"]
        wanted = {"class": failure_class, "rank": 1, "epoch": 0, "node": os.uname().nodename, **told}
        assert {key: failure[key] for key in wanted} == wanted, (action, failure)
        assert report["outcome"] == "failed" and report["exit_status"] == status, (action, report)
        assert set(report["goodput"]["lost_by_cause"]) <= {"starting", failure_class}, (action, report["goodput"])


def success_is_nobodys_fault(s):
    expect(s.run("launch", "--nproc-per-node", "2", "/bin/true"), 0)
    report = s.report()
    assert report["outcome"] == "succeeded" and report["exit_status"] == 0, report
    assert report["first_failure"] is None and report["reason"], report


def signal_to_the_launcher_is_nobodys_fault(s):
    for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        name = f"signal{int(signo)}"
        process = s.start("launch", "--name", name, "--nproc-per-node", "2", s.shell(WAIT))
        wait_until(lambda: "running" in s.run("list").stdout, "the job runs")
        process.send_signal(signo)
        _, err = process.communicate(timeout=sandbox.DEADLINE_S)
        assert process.returncode == 128 + signo, (signo, process.returncode, err)
        job = next(job for job in s.jobs() if job.name.startswith(f"{name}-"))
        report = json.loads((job / "report.json").read_text())
        assert report["outcome"] == "stopped" and report["first_failure"] is None, report


if __name__ == "__main__":
    sandbox.main(__name__)
