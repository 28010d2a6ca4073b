"""Several jobs of one user on one machine."""

import sandbox
from sandbox import expect, lines_of


def two_jobs_may_have_one_name(s):
    program = s.shell("while [ ! -e go ]; do sleep 0.05; done; echo done\n")
    ids = [s.run("submit", "--name", "twin", program).stdout.strip() for _ in range(2)]
    assert len(set(ids)) == 2, ids
    ambiguous = s.run("status", "twin")
    expect(ambiguous, 2, *ids)
    for job in ids:
        expect(s.run("status", job), 0)
    (s.folder / "go").touch()
    for job in ids:
        expect(s.run("resume", job), 0)


def of_two_jobs_with_one_name_the_running_one_is_meant(s):
    expect(s.run("launch", "--name", "twin", "/bin/true"), 0)
    program = s.shell("while [ ! -e go ]; do sleep 0.05; done\n")
    job = s.run("submit", "--name", "twin", program).stdout.strip()
    status = s.run("status", "twin")
    expect(status, 0)
    assert job in status.stdout, status.stdout
    resumed = s.start("resume", job)
    assert job in resumed.stderr.readline()  # attached
    (s.folder / "go").touch()
    resumed.communicate(timeout=sandbox.DEADLINE_S)
    assert resumed.returncode == 0


def many_jobs_start_at_once(s):
    # Of slow programs fewer: one that waits seconds for a processor counts as hung.
    count = 5 if sandbox.SANITIZED else 20
    program = s.shell('echo "$MASTER_PORT"\n')
    processes = [s.start("launch", "--nproc-per-node", "2", program) for _ in range(count)]
    ports = []
    for process in processes:
        out, err = process.communicate(timeout=sandbox.DEADLINE_S)
        assert process.returncode == 0, err
        assert lines_of(out, 0) == lines_of(out, 1) and len(lines_of(out, 0)) == 1, out
        ports += lines_of(out, 0)
    assert len(ports) == count
    listed = s.run("list").stdout
    assert listed.count("succeeded") == count, listed


sandbox.main(__name__)
