"""A daemon that dies or hangs under a job, whoever started it: training goes on, and nothing is lost."""

import contextlib
import os
import signal
import socket
import subprocess

import sandbox
from sandbox import lines_of, wait_until

# Numbered lines until the test says so, then how many there were.
COUNTS = """i=0
while [ ! -e go ]; do
  echo "line $i"
  i=$((i + 1))
  sleep 0.01
done
echo "all $i"
"""
LEASE = ("--lease", "8s")


def daemons(box):
    return [p for p, c in sandbox.processes_with(box.mark).items() if b"/traind " in c]


def counts(s, *flags):
    process = s.start("launch", "--name", "counts", *LEASE, *flags, s.shell(COUNTS),
                      stdout=open(s.folder / "out", "w", encoding="utf-8"),
                      stderr=open(s.folder / "err", "w", encoding="utf-8"))
    await_more_lines(s)
    return process


def await_more_lines(box):
    out = box.folder / "out"
    size = out.stat().st_size
    wait_until(lambda: out.stat().st_size > size, "more lines")


def await_other(s, old):
    def other():
        found = [p for p in daemons(s) if p not in old]
        return found[0] if found else None
    return wait_until(other, "another daemon")


def end_without_a_loss(s, process):
    (s.folder / "go").touch()
    assert process.wait(sandbox.DEADLINE_S) == 0, (s.folder / "err").read_text()
    shown = lines_of((s.folder / "out").read_text(), 0)
    count = len(shown) - 1
    assert shown == [*(f"line {i}" for i in range(count)), f"all {count}"], shown[-3:]
    assert len(s.report()["epochs"]) == 1, s.report()["epochs"]
    return (s.folder / "err").read_text()


@contextlib.contextmanager
def by_hand(box):
    path = box.folder / "traind.sock"
    process = subprocess.Popen([sandbox.BIN / "traind", "--socket", path], env=box.env, stderr=subprocess.DEVNULL)
    try:
        wait_until(path.exists, "the daemon listens")
        yield process, f"unix:{path}"
    finally:
        process.kill()
        process.wait()


def hanging_private_daemon_is_replaced(s):
    process = counts(s)
    first = daemons(s)
    assert len(first) == 1, first
    os.kill(first[0], signal.SIGSTOP)
    await_other(s, first)
    await_more_lines(s)
    err = end_without_a_loss(s, process)
    assert f"traind (pid {first[0]}) hung" in err and "started it again" in err, err


def hanging_daemon_that_somebody_started_is_replaced(s):
    with by_hand(s) as (daemon, address):
        process = counts(s, "--daemon", address)
        daemon.send_signal(signal.SIGSTOP)
        await_other(s, [daemon.pid])
        assert daemon.wait(sandbox.DEADLINE_S) == -signal.SIGKILL
        await_more_lines(s)
        err = end_without_a_loss(s, process)
        assert f"traind (pid {daemon.pid}) hung" in err and "started a private one" in err, err


def killed_daemon_that_somebody_starts_again_keeps_its_job(s):
    with by_hand(s) as (daemon, address):
        process = counts(s, "--daemon", address)
        daemon.kill()
        daemon.wait()
        with by_hand(s) as (second, _):
            await_more_lines(s)
            err = end_without_a_loss(s, process)
            assert daemons(s) in ([second.pid], []), daemons(s)
            assert "private" not in err, err


def killed_daemon_that_nobody_starts_again_is_replaced(s):
    with by_hand(s) as (daemon, address):
        process = counts(s, "--daemon", address)
        daemon.kill()
        daemon.wait()
        await_other(s, [daemon.pid])
        await_more_lines(s)
        end_without_a_loss(s, process)


def hanging_daemon_of_another_node_is_replaced_there(s):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    flags = ("launch", "--nnodes", "2", "--rdzv-endpoint", endpoint, "--rdzv-id", "both", *LEASE, s.shell(COUNTS))
    other = s.start(*flags[:3], "--node-rank", "1", *flags[3:], env={"XDG_STATE_HOME": str(s.folder / "other")})
    process = s.start(*flags[:3], "--node-rank", "0", *flags[3:],
                      stdout=open(s.folder / "out", "w", encoding="utf-8"),
                      stderr=open(s.folder / "err", "w", encoding="utf-8"))
    lines = lambda rank: lines_of((s.folder / "out").read_text(), rank)
    wait_until(lambda: lines(0) and lines(1), "both nodes print")
    children = subprocess.run(["pgrep", "-P", str(other.pid), "traind"], capture_output=True, text=True, check=True)
    first = int(children.stdout)
    before = daemons(s)
    os.kill(first, signal.SIGSTOP)
    await_other(s, before)
    count = len(lines(1))
    wait_until(lambda: len(lines(1)) > count, "more lines of the other node")
    (s.folder / "go").touch()
    assert process.wait(sandbox.DEADLINE_S) == 0, (s.folder / "err").read_text()
    _, err = other.communicate(timeout=sandbox.DEADLINE_S)
    assert other.returncode == 0 and "started it again" in err, err
    for rank in (0, 1):
        count = len(lines(rank)) - 1
        assert lines(rank) == [*(f"line {i}" for i in range(count)), f"all {count}"], lines(rank)[-3:]
    assert f"traind (pid {first}) hung" in (s.folder / "err").read_text(), (s.folder / "err").read_text()
    assert len(s.report()["epochs"]) == 1, s.report()["epochs"]


sandbox.main(__name__)
