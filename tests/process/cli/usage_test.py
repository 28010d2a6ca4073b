"""Bad input to the front end: one clear message, the documented status, nothing started."""

import os
import resource

import sandbox
from sandbox import expect


def unknown_verb_suggests_the_nearest(s):
    expect(s.run("lanch", "x"), 2, "unknown verb lanch", "did you mean launch?")
    expect(s.run(), 2, "no verb")


def unknown_flag_suggests_the_nearest(s):
    expect(s.run("launch", "--nproc-per-nod", "2", "/bin/true"), 2, "did you mean --nproc-per-node?")
    expect(s.run("logs", "x", "--folow"), 2, "did you mean --follow?")


def flags_of_later_versions_are_refused(s):
    expect(s.run("launch", "--scheduler", "x", "/bin/true"), 2, "unknown flag --scheduler")
    expect(s.run("launch", "--nnodes", "2", "/bin/true"), 2, "--rdzv-endpoint HOST:PORT")


def missing_program_is_found_before_anything_starts(s):
    expect(s.run("launch", "none.py"), 2, "none.py", "No such file")
    expect(s.run("launch", "./none"), 2, "./none", "No such file")
    expect(s.run("launch", "no-such-program-anywhere"), 2, "not found in PATH")
    expect(s.run("launch"), 2, "nothing to run")
    expect(s.run("launch", "none.yaml"), 2, "none.yaml")


def program_that_is_not_executable_is_refused(s):
    expect(s.run("launch", s.script("data.bin", "x", 0o644)), 2, "not executable", "chmod +x")
    expect(s.run("launch", str(s.folder)), 2, "not a file")
    expect(s.run("launch", "--no-python", s.script("t.py", "x", 0o644)), 2, "not executable")


def number_of_workers_is_bounded(s):
    for count in ("0", "-1", "1000000", "two"):
        expect(s.run("launch", "--nproc-per-node", count, "/bin/true"), 2, "--nproc-per-node")
        expect(s.run("launch", "/bin/true", env={"PET_NPROC_PER_NODE": count}), 2,
               "--nproc-per-node")


def gpu_without_a_gpu_is_not_fit(s):
    expect(s.run("launch", "--nproc-per-node", "gpu", "/bin/true",
                 env={"CUDA_VISIBLE_DEVICES": ""}), 5, "no NVIDIA GPU")


def job_file_with_an_unknown_key_names_line_and_nearest(s):
    path = s.script("job.yaml", "name: x\ncomand: [/bin/true]\n", 0o644)
    expect(s.run("launch", path), 2, "job.yaml:2:", "did you mean command?")


def job_file_with_a_wrong_type_names_the_line(s):
    path = s.script("job.yaml", "command: [/bin/true]\nrestart:\n  max: often\n", 0o644)
    expect(s.run("launch", path), 2, "job.yaml:3:", "restart.max")


def deep_job_file_is_refused(s):
    expect(s.run("launch", s.script("job.yaml", "[" * 100_000, 0o644)), 2, "levels deep")


def exploding_aliases_are_refused(s):
    text = "a: &a [x, x]\n" + "".join(
        f"{chr(c)}: &{chr(c)} [*{chr(c - 1)}, *{chr(c - 1)}]\n" for c in range(ord("b"), ord("z")))
    expect(s.run("launch", s.script("job.yaml", text, 0o644)), 2, "job.yaml:1:", "anchors")


def huge_job_file_is_refused(s):
    expect(s.run("launch", s.script("job.yaml", "a" * (2 << 20), 0o644)), 2, "job.yaml")


def job_file_that_is_no_file_is_refused(s):
    os.mkfifo(s.folder / "fifo.yaml")
    expect(s.run("launch", "fifo.yaml"), 2, "fifo.yaml is a pipe or device, not a file")
    (s.folder / "folder.yaml").mkdir()
    expect(s.run("launch", "folder.yaml"), 2, "folder.yaml is a folder, not a file")
    expect(s.run("launch", s.script("empty.yaml", "", 0o644)), 2, "empty.yaml: holds nothing")


def unwritable_state_folder_is_not_fit_and_leaves_nothing(s):
    result = s.run("launch", "/bin/true", env={"XDG_STATE_HOME": "/proc/1"})
    expect(result, 5, "cannot keep the job's state", "XDG_STATE_HOME")


def state_needs_a_place(s):
    if os.geteuid() != 0:  # root has a place of its own
        expect(s.run("launch", "/bin/true", env={"XDG_STATE_HOME": "relative", "HOME": ""}), 5, "HOME")


def tight_limits_end_in_one_message_that_names_the_limit(s):
    for limit, most, option in ((resource.RLIMIT_FSIZE, 0, "ulimit -f"),  # no spec
                                (resource.RLIMIT_FSIZE, 8192, "ulimit -f"),  # no worker page
                                (resource.RLIMIT_NOFILE, 16, "ulimit -n"),
                                (resource.RLIMIT_AS, 60 << 20, "ulimit -v")):
        def tighten(limit=limit, most=most):
            resource.setrlimit(limit, (most, most))

        if s.run("version", preexec_fn=tighten).returncode != 0:
            print(f"skipped {option} {most}, because not even trainctl version runs (sanitizers)")
            continue
        result = s.run("launch", "/bin/true", preexec_fn=tighten)
        expect(result, 5, option)
        assert not s.jobs(), s.jobs()
        s.check_nothing_is_left()


def failed_start_leaves_no_log_folder(s):
    expect(s.run("launch", "--daemon", str(s.folder / "none.sock"), "--log-dir", "l", "/bin/true"), 3)
    assert not (s.folder / "l").exists() or not list((s.folder / "l").iterdir())


def unreachable_daemon_is_named(s):
    expect(s.run("launch", "--daemon", str(s.folder / "none.sock"), "/bin/true"), 3, "none.sock")
    assert not s.jobs(), "a job folder is left"


def unknown_job_is_not_reachable(s):
    for verb in ("status", "logs", "resume", "stop"):
        expect(s.run(verb, "nobody"), 3, 'no job "nobody"')


def nodes_wants_a_verb_that_it_knows_and_a_node(s):
    expect(s.run("nodes", "drain"), 2, "give the name of a node")
    expect(s.run("nodes", "drian", "n1"), 2, 'found "drian", expected drain NODE or undrain NODE')


def topology_that_cannot_be_read_is_a_usage_error(s):
    expect(s.run("topo", "--from", "/nope.yaml"), 2, "--from: open /nope.yaml")
    expect(s.run("topo", "--from", "/etc/passwd"), 2, "topology must be a mapping")


def dry_run_starts_nothing(s):
    result = s.run("launch", "--dry-run", "--nproc-per-node", "2", "/bin/echo", "--lr", "it's")
    expect(result, 0)
    for part in ("RANK=0", "RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                 r"/bin/echo --lr 'it'\''s'"):
        assert part in result.stdout, result.stdout
    assert not s.jobs()


def new_key_is_for_its_owner_alone_and_never_replaced(s):
    path = s.folder / "keys/cluster.key"
    result = s.run("key", "new", str(path))
    expect(result, 0, "Copy it")
    assert result.stdout == f"{path}\n", result.stdout
    first = path.read_bytes()
    assert len(first) == 32 and path.stat().st_mode & 0o7777 == 0o600
    expect(s.run("key", "new", str(path)), 1, "never replaced")
    assert path.read_bytes() == first
    expect(s.run("key", "old"), 2, "new")


def help_of_every_verb_has_an_example(s):
    top = s.run("--help")
    expect(top, 0)
    verbs = [line.split()[1] for line in top.stdout.splitlines() if line.startswith("trainctl ")]
    for verb in set(verbs) - {"VERB"}:
        result = s.run(verb, "--help")
        expect(result, 0)
        assert "Example:" in result.stdout, verb


def completion_scripts_are_valid(s):
    import shutil
    import subprocess
    for shell in ("bash", "zsh"):
        result = s.run("completion", shell)
        expect(result, 0)
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=result.stdout, text=True, check=True)


def closed_standard_descriptors_do_no_harm(s):
    import subprocess
    for redirect in (">&-", "2>&-", "<&-", ">&- 2>&- <&-"):
        status = subprocess.run(["/bin/sh", "-c", f'"$0" version {redirect}', sandbox.TRAINCTL],
                                env=s.env, check=False).returncode
        assert status == 0, (redirect, status)


sandbox.main(__name__)
