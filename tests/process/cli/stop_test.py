"""The ways in which a user ends a foreground job."""

import json
import os
import pty
import signal
import time

import sandbox
from sandbox import lines_of, wait_until

DEAF = "trap '' TERM INT HUP\ntouch ready.$RANK\nwhile :; do sleep 0.05; done\n"
OBEYS = "touch ready.$RANK\nexec sleep 1000\n"


def started(s, program, *flags, **options):
    process = s.start("launch", "--nproc-per-node", "2", *flags, s.shell(program), **options)
    wait_until(lambda: all((s.folder / f"ready.{r}").exists() for r in (0, 1)), "both workers run")
    return process


def end(process):
    out, err = process.communicate(timeout=sandbox.DEADLINE_S)
    return out, err


def every_ending_signal_stops_the_job(s):
    for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        process = started(s, OBEYS)
        process.send_signal(signo)
        _, err = end(process)
        assert process.returncode == 128 + signo, (signo, process.returncode, err)
        for rank in (0, 1):
            (s.folder / f"ready.{rank}").unlink()


def second_interrupt_kills_at_once(s):
    process = started(s, DEAF, "--grace", "10m")
    process.send_signal(signal.SIGINT)
    seen = ""
    while "once more" not in seen:
        seen = process.stderr.readline()
        assert seen, "ended after one interrupt"
    process.send_signal(signal.SIGINT)
    end(process)
    assert process.returncode == 128 + signal.SIGINT


def second_interrupt_does_not_wait_for_a_slow_reader(s):
    said = s.folder / "said"
    process = started(s, "touch ready.$RANK\nyes\n", stderr=said.open("w"))
    wait_until(lambda: (s.job() / "logs/0/0/stdout.log").stat().st_size > 30_000_000, "more than it will read")
    process.send_signal(signal.SIGINT)
    end_by = time.monotonic() + sandbox.DEADLINE_S
    asked = False
    while process.poll() is None and time.monotonic() < end_by:
        os.read(process.stdout.fileno(), 4096)
        if not asked and "once more" in said.read_text():
            process.send_signal(signal.SIGINT)
            asked = True
        time.sleep(0.002)
    assert process.poll() == 128 + signal.SIGINT, said.read_text()


def deaf_worker_is_killed_after_the_grace(s):
    process = started(s, DEAF, "--grace", "200ms")
    process.send_signal(signal.SIGINT)
    end(process)
    assert process.returncode == 128 + signal.SIGINT


def worker_may_save_within_the_grace(s):
    process = started(s, "trap 'echo saved; exit 0' TERM\ntouch ready.$RANK\n"
                         "while :; do sleep 0.05; done\n")
    process.send_signal(signal.SIGTERM)
    out, err = end(process)
    assert lines_of(out, 0) == ["saved"] and lines_of(out, 1) == ["saved"], (out, err)


def interrupt_while_starting_leaves_nothing(s):
    process = s.start("launch", "--nproc-per-node", "2", s.shell(OBEYS))
    wait_until(lambda: process.poll() is not None or s.jobs(), "the job's folder")
    process.send_signal(signal.SIGINT)
    end(process)
    assert process.returncode in (128 + signal.SIGINT, -signal.SIGINT), process.returncode


def on_a_terminal(s, *words):
    """Starts trainctl as the leader of a session on a terminal of its own."""
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(s.folder)
        os.execve(sandbox.TRAINCTL, [sandbox.TRAINCTL, *words], {**s.env, "TERM": "xterm"})
    return pid, master


def closed_terminal_stops_the_job(s):
    pid, master = on_a_terminal(s, "launch", "--nproc-per-node", "2", s.shell(OBEYS))
    wait_until(lambda: all((s.folder / f"ready.{r}").exists() for r in (0, 1)), "both workers run")
    os.close(master)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP, status
    assert s.report()["outcome"] == "stopped", s.report()


def interrupt_key_stops_the_job(s):
    pid, master = on_a_terminal(s, "launch", "--nproc-per-node", "2", s.shell(OBEYS))
    wait_until(lambda: all((s.folder / f"ready.{r}").exists() for r in (0, 1)), "both workers run")
    os.write(master, b"\x03")
    seen = b""
    try:
        while chunk := os.read(master, 65536):
            seen += chunk
    except OSError:
        pass  # the terminal ends with its last user
    _, status = os.waitpid(pid, 0)
    os.close(master)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGINT, (status, seen)


def nohup_survives_the_hangup(s):
    process = started(s, "touch ready.$RANK\nwhile [ ! -e go ]; do sleep 0.05; done\n",
                      preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.send_signal(signal.SIGHUP)
    (s.folder / "go").touch()
    _, err = end(process)
    assert process.returncode == 0, err


def hanging_coordinator_does_not_keep_the_front_end_from_leaving(s):
    process = started(s, OBEYS, "--orphan-timeout", "200ms")
    coordinator = [p for p, c in sandbox.processes_with(s.mark).items() if b"/train-coordinator " in c]
    assert len(coordinator) == 1, coordinator
    os.kill(coordinator[0], signal.SIGSTOP)
    try:
        for said in ("once more", "killing the workers", "leaving"):
            process.send_signal(signal.SIGINT)
            seen = ""
            while said not in seen:
                seen = process.stderr.readline()
                assert seen and "cannot ask" not in seen, seen
        end(process)
        assert process.returncode == 128 + signal.SIGINT
    finally:
        os.kill(coordinator[0], signal.SIGCONT)
    wait_until(s.outcome, "the job, which nobody watches, ends")


def front_end_that_reads_nothing_over_the_end_of_the_job_still_gets_everything(s):
    """A pager, or Ctrl-Z. More than all buffers on the way hold, and a last line that they do hold."""
    jobs = {}
    for name, work in (("much", "seq 400000"), ("little", "echo the end")):
        go = s.folder / f"go.{name}"
        program = s.shell(f"touch ready.{name}\nwhile [ ! -e {go} ]; do sleep 0.05; done\n{work}\n",
                          f"{name}.sh")
        jobs[name] = s.start("launch", "--name", name, program)
        assert f"job {name}-" in jobs[name].stderr.readline()  # attached
        wait_until((s.folder / f"ready.{name}").exists, f"{name} runs")
    for process in jobs.values():
        process.send_signal(signal.SIGSTOP)
    for name in jobs:
        (s.folder / f"go.{name}").touch()
    for job in s.jobs():
        wait_until(lambda j=job: "has not read all" in (j / "coordinator.log").read_text(),
                   f"the coordinator of {job.name} has lost patience once")
        assert json.loads((job / "report.json").read_text())["outcome"] == "succeeded", job
    for process in jobs.values():
        process.send_signal(signal.SIGCONT)
    ends = {name: end(process) for name, process in jobs.items()}
    assert [p.returncode for p in jobs.values()] == [0, 0], ends
    assert lines_of(ends["much"][0], 0) == [str(i) for i in range(1, 400001)]
    assert lines_of(ends["little"][0], 0) == ["the end"]
    for out, err in ends.values():
        assert "succeeded" in err, err


def front_end_killed_over_the_end_of_the_job_is_not_waited_for(s):
    process = started(s, "touch ready.$RANK\nwhile [ ! -e go ]; do sleep 0.05; done; echo end\n")
    process.send_signal(signal.SIGSTOP)
    (s.folder / "go").touch()
    wait_until(s.outcome, "the job ends")
    process.kill()
    end(process)


def killed_front_end_leaves_an_orphan_that_ends(s):
    process = started(s, OBEYS, "--orphan-timeout", "200ms")
    process.kill()
    process.wait()
    wait_until(s.outcome, "the orphan ends")
    assert s.outcome() in ("stopped", "failed"), s.report()


def job_that_was_submitted_goes_on_when_its_front_end_leaves(s):
    job = s.run("submit", s.shell("touch ready\nwhile [ ! -e go ]; do sleep 0.05; done; echo end\n"))
    job = job.stdout.strip()
    wait_until((s.folder / "ready").exists, "the job runs")
    resumed = s.start("resume", job)
    assert job in resumed.stderr.readline()  # attached
    resumed.send_signal(signal.SIGINT)
    _, err = end(resumed)
    assert resumed.returncode == 128 + signal.SIGINT, resumed.returncode
    assert f"trainctl stop {job}" in err, err
    assert s.outcome() is None, s.report()
    (s.folder / "go").touch()
    wait_until(s.outcome, "the job ends")
    assert s.outcome() == "succeeded", s.report()


def closed_terminal_leaves_a_job_that_was_submitted_alone(s):
    pid, master = on_a_terminal(s, "submit", s.shell("touch ready\nwhile [ ! -e go ]; do sleep 0.05; done\n"))
    os.waitpid(pid, 0)
    os.close(master)
    wait_until((s.folder / "ready").exists, "the job runs")
    pid, master = on_a_terminal(s, "resume", s.job().name)
    seen = b""
    while s.job().name.encode() not in seen:
        seen += os.read(master, 65536)  # attached
    os.close(master)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP, status
    assert s.outcome() is None, s.report()
    (s.folder / "go").touch()
    wait_until(s.outcome, "the job ends")
    assert s.outcome() == "succeeded", s.report()


def killed_front_end_is_replaced_by_resume(s):
    process = started(s, "touch ready.$RANK\nwhile [ ! -e go ]; do sleep 0.05; done; echo end\n")
    process.kill()
    process.wait()
    resumed = s.start("resume", s.job().name)
    assert s.job().name in resumed.stderr.readline()  # attached
    (s.folder / "go").touch()
    out, err = end(resumed)
    assert resumed.returncode == 0, err
    assert lines_of(out, 0) == ["end"], (out, err)


sandbox.main(__name__)
