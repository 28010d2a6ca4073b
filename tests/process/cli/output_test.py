"""Logs: since when, how much, on a full disk, of which ranks, and what a progress bar leaves in them."""

import datetime
import json
import subprocess
import time

import sandbox
from sandbox import Skip, expect, lines_of, wait_until

WAIT = "while [ ! -e go ]; do sleep 0.05; done\n"


def sizes(box):
    return {path.name: path.stat().st_size for path in box.job().glob("logs/*/*/*")}


def logs_since_a_time_begin_with_a_whole_line(s):
    program = s.shell("echo first\nprintf begun\n" + WAIT + 'echo " before"\necho last\n')
    process = s.start("launch", "--name", "since", program)
    log = lambda: (s.job() / "logs/0/0/stdout.log").read_text()
    wait_until(lambda: s.jobs() and (s.job() / "logs/0/0/stdout.log").exists() and "begun" in log(), "the first line")
    # The times of lines are kept to a second.
    before = time.time()
    wait_until(lambda: time.time() > before + 1.1, "another second")
    now = datetime.datetime.now(datetime.timezone.utc)
    assert s.run("logs", "since", "--since", "0s").stdout == ""
    (s.folder / "go").touch()
    process.communicate(timeout=sandbox.DEADLINE_S)
    for since in (now.isoformat(), now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), f"{time.time() - now.timestamp():.3f}s"):
        result = s.run("logs", "since", "--since", since)
        assert lines_of(result.stdout, 0) == ["last"], (since, result)
    assert lines_of(s.run("logs", "since", "--since", "10m").stdout, 0) == ["first", "begun before", "last"]
    assert s.run("logs", "since", "--since", "2999-01-01T00:00:00Z").stdout == ""
    expect(s.run("logs", "since", "--since", "yesterday"), 2, "--since", "10m", "2026-01-31T12:00:00Z")


def logs_keep_their_quota_and_nobody_who_reads_along_misses_a_line(s):
    program = s.shell("seq 1 400000\n")
    result = s.run("launch", "--name", "much", "--log-quota", "1MiB", program)
    expect(result, 0)
    shown = [int(line) for line in lines_of(result.stdout, 0)]
    assert sum(sizes(s).values()) <= 1 << 20, sizes(s)
    pieces = sorted((s.job() / "logs/0/0").glob("stdout.log.*"), key=lambda path: int(path.suffix[1:]))
    assert len(pieces) >= 2, sizes(s)
    assert all(piece.read_bytes().endswith(b"\n") for piece in pieces)
    kept = b"".join(path.read_bytes() for path in [*pieces, s.job() / "logs/0/0/stdout.log"])
    numbers = [int(line) for line in kept.splitlines()]
    assert numbers == list(range(numbers[0], 400001))
    logs = s.run("logs", "much")
    expect(logs, 0, "bytes of its stdout are gone", "--log-quota")
    assert [int(line) for line in lines_of(logs.stdout, 0)] == numbers
    # Where the front end was too slow it says so; what it shows is whole, and in order.
    if "are gone" not in result.stderr:
        assert shown == list(range(1, 400001))
    assert shown == sorted(set(shown)) and shown[-1] == 400000


def front_end_that_comes_back_goes_on_across_pieces(s):
    program = s.shell('seq 1 30000\n' + WAIT + 'seq 30001 60000\n' + 'while [ ! -e end ]; do sleep 0.05; done\n')
    first = s.start("launch", "--name", "back", "--log-quota", "1MiB", "--orphan-timeout", "none", program)
    wait_until(lambda: s.jobs() and list((s.job() / "logs/0/0").glob("stdout.log.*")), "a piece")
    first.kill()
    first.communicate()
    again = s.start("resume", "back")
    (s.folder / "go").touch()
    wait_until(lambda: "60000" in s.run("logs", "back", "--grep", "^60000$").stdout, "the last line")
    (s.folder / "end").touch()
    out, err = again.communicate(timeout=sandbox.DEADLINE_S)
    assert again.returncode == 0, err
    assert [int(line) for line in lines_of(out, 0)] == list(range(1, 60001))


def logs_are_followed_across_pieces(s):
    program = s.shell(WAIT + "seq 1 60000\n" + "while [ ! -e end ]; do sleep 0.05; done\n")
    job = s.start("launch", "--name", "far", "--log-quota", "1MiB", program)
    wait_until(lambda: s.jobs() and (s.job() / "logs/0/0/stdout.log").exists(), "the log")
    with open(s.folder / "followed", "w", encoding="utf-8") as out:
        follower = s.start("logs", "far", "-f", stdout=out)
        (s.folder / "go").touch()
        wait_until(lambda: "] 60000\n" in (s.folder / "followed").read_text(), "the last line")
    (s.folder / "end").touch()
    job.communicate(timeout=sandbox.DEADLINE_S)
    follower.communicate(timeout=sandbox.DEADLINE_S)
    assert list((s.job() / "logs/0/0").glob("stdout.log.*")), sizes(s)
    shown = [int(line) for line in lines_of((s.folder / "followed").read_text(), 0)]
    assert shown == list(range(1, 60001))


def quota_is_a_size_in_flag_and_job_file(s):
    for value in ("much", "0", "-1GiB"):
        expect(s.run("launch", "--log-quota", value, "/bin/true"), 2, "--log-quota", "none")
    (s.folder / "job.yaml").write_text("command: [seq, '1', '200000']\nlimits: {logs: 512KiB}\n")
    expect(s.run("launch", "job.yaml"), 0)
    assert sum(sizes(s).values()) <= 512 << 10, sizes(s)
    (s.folder / "job.yaml").write_text("command: [/bin/true]\nlimits: {logs: much}\n")
    expect(s.run("launch", "job.yaml"), 2, "job.yaml:2", "logs")


def full_log_disk_never_stops_the_workers(s):
    own = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    if own.returncode != 0:
        raise Skip(f"there can be no mount namespace: {own.stderr.strip()}")
    disk = s.folder / "disk"
    disk.mkdir()
    program = s.shell(f"seq 1 100000\ntouch printed\nrm {disk}/ballast\nsleep 0.2\nseq 1 100\necho end\n")
    # What the disk holds is kept, for it goes with its namespace.
    script = (f"mount -t tmpfs -o size=256k tmpfs {disk} && head -c 150000 /dev/zero > {disk}/ballast && "
              f'"$@"; status=$?; cp -r {disk} {s.folder}/kept; exit $status')
    result = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", sandbox.TRAINCTL, "launch", "--log-dir", str(disk), program],
        env=s.env, cwd=s.folder, capture_output=True, text=True, timeout=sandbox.DEADLINE_S, check=False)
    assert result.returncode == 0, result
    assert (s.folder / "printed").exists()
    assert "its output is lost" in result.stderr and "No space left on device" in result.stderr, result.stderr
    log = next((s.folder / "kept").rglob("stdout.log")).read_text().splitlines()
    gap = next(i for i, line in enumerate(log) if "bytes of output are lost here: No space left on device" in line)
    # Behind the gap there are whole lines again.
    assert log[gap + 1:][-2:] == ["100", "end"], log[gap:]


def progress_bar_is_a_line_for_each_time_it_is_drawn(s):
    program = s.shell('for i in 1 2 3; do printf "\\r%s0%%" $i; sleep 0.02; done; printf "\\ndone\\r\\n"\n')
    result = s.run("launch", "--name", "bar", program)
    expect(result, 0)
    assert lines_of(result.stdout, 0) == ["10%", "20%", "30%", "done"], result.stdout
    assert lines_of(s.run("logs", "bar").stdout, 0) == ["10%", "20%", "30%", "done"]
    # The file is what the worker printed, byte by byte.
    assert (s.job() / "logs/0/0/stdout.log").read_bytes() == b"\r10%\r20%\r30%\ndone\r\n"


def json_lines_name_epoch_rank_and_stream_and_hold_any_bytes(s):
    program = s.shell('[ "$RANK" = 11 ] && printf "a \\"quoted\\" \\377 line\\n" && echo oops >&2; exit 0\n')
    # What is no UTF-8 comes through as it is.
    expect(s.run("launch", "--name", "twelve", "--nproc-per-node", "12", program, stdout=subprocess.DEVNULL), 0)
    found = [json.loads(line) for line in s.run("logs", "twelve", "--json").stdout.splitlines()]
    keys = {"schema": 1, "type": "output", "epoch": 0, "rank": 11}
    assert found == [{**keys, "stream": "stdout", "line": 'a "quoted" \ufffd line'},
                     {**keys, "stream": "stderr", "line": "oops"}], found
    assert b"\xff" in (s.job() / "logs/0/11/stdout.log").read_bytes()
    for ranks, count in (("11", 2), ("0-10", 0), ("3,9-11", 2)):
        assert len(s.run("logs", "twelve", "--rank", ranks, "--json").stdout.splitlines()) == count, ranks
    result = s.run("logs", "twelve", "--grep", "^oo", "--json")
    assert [json.loads(line)["line"] for line in result.stdout.splitlines()] == ["oops"]


if __name__ == "__main__":
    sandbox.main(__name__)
