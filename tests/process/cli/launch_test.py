"""What a launched job shows, ends with and leaves behind."""

import contextlib
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess

import sandbox
from sandbox import expect, lines_of, wait_until


def success_is_status_zero(s):
    result = s.run("launch", "--nproc-per-node", "2", "/bin/echo", "hello", "--help")
    expect(result, 0)
    assert lines_of(result.stdout, 0) == ["hello --help"], result.stdout
    assert lines_of(result.stdout, 1) == ["hello --help"], result.stdout
    assert s.report()["outcome"] == "succeeded"


def streams_keep_apart_and_lines_stay_whole(s):
    program = s.shell('for i in $(seq 200); do printf "out $i "; printf "err $i\\n" >&2; '
                      'printf "done\\n"; done\nprintf "no newline at the end"\n')
    result = s.run("launch", "--nproc-per-node", "4", program)
    expect(result, 0)
    for rank in range(4):
        out = lines_of(result.stdout, rank)
        assert out == [f"out {i} done" for i in range(1, 201)] + ["no newline at the end"], out
        assert [line for line in lines_of(result.stderr, rank)
                if line.startswith("err")] == [f"err {i}" for i in range(1, 201)]


def daemons_place_for_systemd_and_for_memory_stays_its_own(s):
    """A service that launches a job is not spoken for by what it starts, and a worker of a process that the
    kernel spares is not spared."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(s.folder / "notify"))
    listener.setblocking(False)
    program = s.shell('tr "\\0" "\\n" < /proc/$PPID/environ | grep -c "^NOTIFY_SOCKET=\\|^WATCHDOG_"\n'
                      'cat /proc/self/oom_score_adj\n')

    def be_spared():
        with contextlib.suppress(OSError):  # root only
            pathlib.Path("/proc/self/oom_score_adj").write_text("-300")

    result = s.run("launch", program, env={"NOTIFY_SOCKET": str(s.folder / "notify"), "WATCHDOG_USEC": "1000000"},
                   preexec_fn=be_spared)
    expect(result, 0)
    assert lines_of(result.stdout, 0) == ["0", "0"], result.stdout
    try:
        raise AssertionError(f"somebody said {listener.recv(4096)} to systemd")
    except BlockingIOError:
        pass


def redirected_streams_are_in_files_only(s):
    program = s.shell('echo "out $LOCAL_RANK"; echo "err $LOCAL_RANK" >&2\n')
    result = s.run("launch", "--nproc-per-node", "2", "-r", "3", "-t", "1:1", program)
    expect(result, 0)
    assert lines_of(result.stdout, 0) == [] and lines_of(result.stdout, 1) == ["out 1"]
    assert "err 0" not in result.stderr and "err 1" not in result.stderr
    for rank in (0, 1):
        assert (s.job() / f"logs/0/{rank}/stderr.log").read_text() == f"err {rank}\n"


def local_ranks_filter_limits_the_console(s):
    result = s.run("launch", "--nproc-per-node", "3", "--local-ranks-filter", "1", "/bin/echo", "x")
    expect(result, 0)
    assert [len(lines_of(result.stdout, r)) for r in range(3)] == [0, 1, 0], result.stdout


def log_dir_is_used_and_logs_finds_it(s):
    result = s.run("launch", "--log-dir", "my logs", "/bin/echo", "kept")
    expect(result, 0)
    found = list((s.folder / "my logs").rglob("stdout.log"))
    assert [f.read_text() for f in found] == ["kept\n"], found
    assert "kept" in s.run("logs", s.job().name).stdout


def torchruns_environment_counts_and_flags_win(s):
    program = s.shell('echo "$WORLD_SIZE"\n')
    env = {"PET_NPROC_PER_NODE": "2"}
    assert lines_of(s.run("launch", program, env=env).stdout, 1) == ["2"]
    assert lines_of(s.run("launch", "--nproc_per_node=1", program, env=env).stdout, 0) == ["1"]


def python_scripts_modules_and_plain_programs_run(s):
    script = s.script("train.py", "import sys\nprint(sys.argv[1:])\n", 0o644)
    assert lines_of(s.run("launch", script, "-m", "--x").stdout, 0) == ["['-m', '--x']"]
    s.script("pack.py", "print('module')\n", 0o644)
    assert lines_of(s.run("launch", "-m", "pack").stdout, 0) == ["module"]
    direct = s.script("tool.py", "#!/bin/sh\necho shell\n")
    assert lines_of(s.run("launch", "--no-python", direct).stdout, 0) == ["shell"]


def local_rank_argument_is_appended(s):
    program = s.shell('echo "$@"\n')
    result = s.run("launch", "--nproc-per-node", "2", "--local-rank-arg", program, "--lr", "1")
    assert lines_of(result.stdout, 1) == ["--lr 1 --local-rank=1"], result
    result = s.run("launch", "--local-rank-arg=local_rank", program)
    assert lines_of(result.stdout, 0) == ["--local_rank=0"], result


def exit_code_of_a_worker_is_a_failure(s):
    result = s.run("launch", "--nproc-per-node", "2", s.shell("echo why >&2; exit 7"))
    expect(result, 1, "7", "why")
    failure = s.report()["first_failure"]
    assert failure["code"] == 7 and failure["rank"] in (0, 1), failure


def exit_code_is_propagated_on_request(s):
    expect(s.run("launch", "--propagate-exit-code", s.shell("exit 7")), 7)


def signal_that_kills_a_worker_is_named(s):
    expect(s.run("launch", s.shell("kill -SEGV $$")), 1, "SEGV")


def exception_is_in_the_last_lines(s):
    script = s.script("fail.py", "def f():\n  raise ValueError('bad shape 3')\nf()\n", 0o644)
    result = s.run("launch", "--nproc-per-node", "2", script)
    expect(result, 1, "ValueError: bad shape 3")
    tail = "\n".join(result.stderr.splitlines()[-40:])
    assert "rank" in tail and "ValueError: bad shape 3" in tail, tail
    assert str(s.job()) in tail, tail


def last_words_of_workers_that_end_at_once_are_kept(s):
    result = s.run("launch", "--nproc-per-node", "3", s.shell("echo no such device >&2\nexit 7\n"))
    expect(result, 1, "| no such device")
    assert "no such device" in s.report()["first_failure"]["output_tail"], s.report()


def failing_import_never_restarts(s):
    script = s.script("train.py", "import no_such_module_anywhere\n", 0o644)
    expect(s.run("launch", "--max-restarts", "5", script), 1, "no_such_module_anywhere")
    assert s.report()["restarts"] == 0, s.report()


def failing_worker_restarts_within_its_budget(s):
    program = s.shell('echo "epoch $TRAINCTL_EPOCH"\n[ "$TRAINCTL_EPOCH" = 2 ] && exit 0\n'
                      '[ "$RANK" = 0 ] && exit 3\nexec sleep 60\n')
    result = s.run("launch", "--nproc-per-node", "2", "--max-restarts", "2", program)
    expect(result, 0)
    assert lines_of(result.stdout, 0) == ["epoch 0", "epoch 1", "epoch 2"], result.stdout
    assert s.report()["restarts"] == 2


def worker_that_closes_its_output_goes_on(s):
    program = s.shell("exec >&- 2>&-\ntouch closed\n")
    expect(s.run("launch", program), 0)
    assert (s.folder / "closed").exists()


def flood_is_shown_whole_and_in_bounded_memory(s):
    program = s.shell("yes 'a line of forty characters, more or less' | head -c 50000000\n")
    process = s.start("launch", program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    lines, peak = 0, 0
    while chunk := process.stdout.buffer.read(1 << 20):
        lines += chunk.count(b"\n")
        for pid, command in sandbox.processes_with(s.mark).items():
            if b"trainctl" in command or b"train-" in command:
                try:
                    status = open(f"/proc/{pid}/status", encoding="utf-8").read()
                    peak = max(peak, int(status.split("VmHWM:")[1].split()[0]))
                except (OSError, IndexError):
                    pass
    assert process.wait(sandbox.DEADLINE_S) == 0
    assert lines == -(-50_000_000 // 41), lines
    assert sandbox.SANITIZED or peak < 200_000, f"{peak} kB"


def reader_that_goes_away_ends_the_job(s):
    process = s.start("launch", s.shell("yes\n"), stderr=subprocess.DEVNULL)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(sandbox.DEADLINE_S) == 128 + signal.SIGPIPE


def json_is_one_object_per_line(s):
    result = s.run("launch", "--json", "/bin/echo", "hello")
    expect(result, 0)
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(o["schema"] == 1 for o in objects)
    assert [o["line"] for o in objects if o["type"] == "output"] == ["hello"]
    assert objects[-1]["type"] == "end" and objects[-1]["outcome"] == "succeeded", objects[-1]


def submit_prints_the_id_and_returns(s):
    program = s.shell("while [ ! -e go ]; do sleep 0.05; done; echo finished\n")
    result = s.run("submit", "--name", "night", program)
    expect(result, 0)
    job = result.stdout.strip()
    assert job == s.job().name and job.startswith("night-"), result.stdout
    wait_until(lambda: "running" in s.run("list").stdout, "the list shows a running job")
    status = s.run("status", "night")
    expect(status, 0)
    assert "running" in status.stdout and job in status.stdout
    described = json.loads(s.run("status", "--json", job).stdout)
    assert described["schema"] == 1 and described["job"] == job, described
    resumed = s.start("resume", job[:7])
    assert job in resumed.stderr.readline()  # attached
    (s.folder / "go").touch()
    out, err = resumed.communicate(timeout=sandbox.DEADLINE_S)
    assert resumed.returncode == 0, err
    assert lines_of(out, 0) == ["finished"], (out, err)
    assert lines_of(s.run("logs", "night").stdout, 0) == ["finished"]
    assert "succeeded" in s.run("list").stdout


def job_that_is_over_never_runs_again(s):
    program = s.shell("echo ran >> runs; exit 4\n")
    expect(s.run("launch", "--name", "once", program), 1)
    result = s.run("resume", "once")
    expect(result, 1)
    assert "failed" in result.stdout, result.stdout
    assert (s.folder / "runs").read_text() == "ran\n"
    expect(s.run("stop", "once"), 3, "already over")
    expect(s.run("status", "once"), 0)


def first_front_end_hears_what_was_announced_before_it_came(s):
    program = s.shell("touch ready; while [ ! -e go ]; do sleep 0.05; done\n")
    job = s.run("submit", "--name", "early", program).stdout.strip()
    wait_until((s.folder / "ready").exists, "the job runs")
    assert "epoch 0: 1 worker" in (s.job() / "coordinator.log").read_text()
    resumed = s.start("resume", job)
    assert job in resumed.stderr.readline()  # attached
    assert "epoch 0: 1 worker" in resumed.stderr.readline()
    (s.folder / "go").touch()
    resumed.communicate(timeout=sandbox.DEADLINE_S)
    assert resumed.returncode == 0


def job_whose_report_cannot_be_written_is_known_to_be_over(s):
    process = s.start("launch", "--name", "mute",
                      s.shell("touch ready; while [ ! -e go ]; do sleep 0.05; done\n"))
    wait_until((s.folder / "ready").exists, "the job runs")
    report = s.job() / "report.json"
    wait_until(report.is_file, "the first report")
    report.unlink()
    report.mkdir()  # what root cannot replace by a file either
    (s.folder / "go").touch()
    _, err = process.communicate(timeout=sandbox.DEADLINE_S)
    assert process.returncode == 0 and "write the report" in err, err
    assert "succeeded" in s.run("list").stdout, s.run("list").stdout
    assert "over, succeeded" in s.run("status", "mute").stdout
    expect(s.run("stop", "mute"), 3, "already over")
    expect(s.run("resume", "mute"), 0)


def stop_ends_a_job(s):
    s.run("submit", "--name", "long", s.shell("exec sleep 1000\n"))
    wait_until(lambda: "running" in s.run("status", "long").stdout, "the job runs")
    expect(s.run("stop", "long"), 0, "asked job long-", "to stop")
    wait_until(s.outcome, "the job ends")
    assert s.outcome() == "stopped"


def signal_reaches_every_worker(s):
    program = s.shell("trap 'echo got it; exit 0' USR1\ntouch ready.$RANK\n"
                      "while :; do sleep 0.05; done\n")
    process = s.start("launch", "--nproc-per-node", "2", "--name", "sig", program)
    wait_until(lambda: (s.folder / "ready.0").exists() and (s.folder / "ready.1").exists(), "ready")
    expect(s.run("signal", "sig", "USR1"), 0, "SIGUSR1 to every worker")
    out, err = process.communicate(timeout=sandbox.DEADLINE_S)
    assert process.returncode == 0, err
    assert lines_of(out, 0) == ["got it"] and lines_of(out, 1) == ["got it"], out


def logs_are_followed_and_filtered(s):
    program = s.shell("echo first $RANK; while [ ! -e go ]; do sleep 0.05; done; echo last $RANK\n")
    s.run("submit", "--nproc-per-node", "2", "--name", "logged", program)
    follower = s.start("logs", "-f", "--rank", "1", "logged")
    assert "first 1" in follower.stdout.readline()
    (s.folder / "go").touch()
    out, _ = follower.communicate(timeout=sandbox.DEADLINE_S)
    assert lines_of(out, 1) == ["last 1"] and not lines_of(out, 0), out
    grepped = s.run("logs", "--grep", "^la.t", "logged").stdout
    assert lines_of(grepped, 0) == ["last 0"] and lines_of(grepped, 1) == ["last 1"], grepped
    expect(s.run("logs", "--grep", "(", "logged"), 2, "regular expression")


def job_file_with_a_command_runs(s):
    job = s.script("job.yaml", 'name: filed\nnodes: {workers: 2}\ncommand: [/bin/sh, -c, "echo $X"]\n'
                               'env: {X: "from the file"}\n', 0o644)
    result = s.run("launch", job)
    expect(result, 0)
    assert lines_of(result.stdout, 1) == ["from the file"]
    assert s.job().name.startswith("filed-")


def killed_private_daemon_is_started_again(s):
    program = s.shell("while [ ! -e go ]; do sleep 0.05; done; echo finished\n")
    process = s.start("launch", "--name", "d", program)

    def daemon():
        return [p for p, c in sandbox.processes_with(s.mark).items() if b"/traind " in c]

    wait_until(lambda: s.jobs() and "running" in s.run("status", "d").stdout, "the job runs")
    first = daemon()
    assert len(first) == 1, sandbox.processes_with(s.mark)
    os.kill(first[0], signal.SIGKILL)
    wait_until(lambda: daemon() and daemon() != first, "another daemon")
    (s.folder / "go").touch()
    out, err = process.communicate(timeout=sandbox.DEADLINE_S)
    assert process.returncode == 0, err
    assert lines_of(out, 0) == ["finished"], (out, err)


def node_whose_workers_cannot_be_held_any_more_ends_the_job(s):
    process = s.start("launch", s.shell("touch ready; exec sleep 1000\n"))
    wait_until((s.folder / "ready").exists, "the job runs")
    living = sandbox.processes_with(s.mark)
    daemon = [p for p, c in living.items() if b"/traind " in c]
    keeper = [p for p, c in living.items() if b"/train-shim " in c]
    assert len(daemon) == 1 and len(keeper) == 2, living
    resource.prlimit(daemon[0], resource.RLIMIT_FSIZE, (8192, 8192))  # a page is larger
    os.kill(min(keeper), signal.SIGKILL)
    out, err = process.communicate(timeout=sandbox.DEADLINE_S)
    assert process.returncode == 5, (process.returncode, out, err)
    assert "cannot run workers" in err and "ulimit -f" in err, err


def job_whose_processes_all_died_is_taken_over(s):
    program = s.shell("while [ ! -e go ]; do sleep 0.05; done; echo finished\n")
    s.run("submit", "--name", "lost", program)
    wait_until(lambda: "running" in s.run("status", "lost").stdout, "the job runs")
    s.kill_everything()
    wait_until(lambda: "interrupted" in s.run("list").stdout, "the kernel is done with them")
    expect(s.run("status", "lost"), 3, "trainctl resume")
    expect(s.run("stop", "lost"), 3, "trainctl resume")
    resumed = s.start("resume", "lost")
    assert s.job().name in resumed.stderr.readline()  # attached
    (s.folder / "go").touch()
    out, err = resumed.communicate(timeout=sandbox.DEADLINE_S)
    assert resumed.returncode == 0, err
    assert lines_of(out, 0)[-1] == "finished", (out, err)


def job_that_two_take_over_at_once_runs_once(s):
    program = s.shell("while [ ! -e go ]; do sleep 0.05; done; echo finished\n")
    s.run("submit", "--name", "lost", program)
    wait_until(lambda: "running" in s.run("status", "lost").stdout, "the job runs")
    s.kill_everything()
    wait_until(lambda: "interrupted" in s.run("list").stdout, "the kernel is done with them")
    both = [s.start("resume", "lost") for _ in range(2)]
    for resumed in both:
        assert s.job().name in resumed.stderr.readline()  # attached
    (s.folder / "go").touch()
    for resumed in both:
        out, err = resumed.communicate(timeout=sandbox.DEADLINE_S)
        assert resumed.returncode == 0 and lines_of(out, 0)[-1] == "finished", (out, err)
    assert len(s.report()["epochs"]) == 2, s.report()


sandbox.main(__name__)
