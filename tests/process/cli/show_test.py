"""Verbs that only look: what they print, for people and for programs, and what they say when they cannot."""

import json
import subprocess

import sandbox
from sandbox import expect, wait_until


def only_line(result):
    lines = result.stdout.splitlines()
    assert len(lines) == 1, result
    return json.loads(lines[0])


def output_that_cannot_be_written_is_a_failure(s):
    expect(s.run("launch", "--name", "done", s.shell("echo hello\n")), 0)
    for words in (["list"], ["list", "--json"], ["--help"], ["logs", "--help"], ["version"], ["logs", "done"],
                  ["status", "done"], ["completion", "bash"], ["launch", "--dry-run", "/bin/true"],
                  ["launch", s.shell("echo hello\n")]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            expect(s.run(*words, stdout=full), 1, "trainctl: write to stdout: No space left on device")


def reader_that_had_enough_is_no_failure(s):
    expect(s.run("launch", "--name", "done", s.shell("seq 1 100000\n"), stdout=subprocess.DEVNULL), 0)
    process = s.start("logs", "done", stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(sandbox.DEADLINE_S) == 0 and not err, err


def state_that_cannot_be_read_is_told_and_not_taken_for_no_jobs(s):
    state = s.folder / "broken"
    state.mkdir()
    (state / "trainctl").write_text("a file where a folder should be")
    for words in (["list"], ["status", "x"], ["logs", "x"], ["stop", "x"]):
        result = s.run(*words, env={"XDG_STATE_HOME": str(state)})
        expect(result, 3, "look for jobs: ", str(state), "Not a directory")
        assert not result.stdout, result.stdout


def list_without_jobs_says_so(s):
    result = s.run("list")
    expect(result, 0, "no jobs yet")
    result = s.run("list", "--json")
    expect(result, 0)
    assert not result.stdout and not result.stderr, result


def job_has_the_same_keys_in_list_and_status(s):
    process = s.start("launch", "--name", "long", s.shell("while [ ! -e stop ]; do sleep 0.05; done\n"))
    wait_until(lambda: "running" in s.run("status", "long").stdout, "the job runs")
    for running in (True, False):
        listed = only_line(s.run("list", "--json"))
        shown = only_line(s.run("status", "--json", "long"))
        assert {k: shown[k] for k in listed} == listed, (listed, shown)
        assert listed["type"] == "job" and listed["name"] == "long" and listed["step"] == 0, listed
        assert listed["state"] == ("running" if running else "succeeded"), listed
        if running:
            assert len(shown["workers"]) == 1, shown
            (s.folder / "stop").touch()
            process.communicate(timeout=sandbox.DEADLINE_S)
    assert shown["exit_status"] == 0 and shown["report"].endswith("report.json"), shown
    assert " - " in s.run("list").stdout, "a job without steps is shown at step -"


def errors_are_json_too_if_json_was_asked_for(s):
    for words, status in ((["launch", "--json", "--bad", "x"], 2), (["lanch", "--json"], 2),
                          (["status", "--json"], 2), (["status", "--json", "nobody"], 3),
                          (["logs", "nobody", "--json"], 3), (["launch", "--json", "none.py"], 2)):
        result = s.run(*words)
        expect(result, status, "trainctl: ")
        error = only_line(result)
        assert error["schema"] == 1 and error["type"] == "error" and error["exit_status"] == status, error
        assert f"trainctl: {error['message']}\n" == result.stderr, (error, result.stderr)
    assert not s.run("launch", "none.py", "--json").stdout, "the --json is the program's"


def ranks_that_the_job_does_not_have_are_refused(s):
    expect(s.run("launch", "--name", "two", "--nproc-per-node", "2", s.shell("echo hello\n")), 0)
    expect(s.run("logs", "two", "--rank", "0-7"), 2, "--rank: found 7, but job two-", "ranks 0 to 1")
    expect(s.run("logs", "two", "--rank", "1"), 0)


def help_of_every_verb_lists_the_exit_statuses(s):
    for verb in ("launch", "list", "logs", "version"):
        result = s.run(verb, "--help")
        expect(result, 0)
        assert "Exit status:" in result.stdout and "128+N" in result.stdout, result.stdout


def programs_beside_trainctl_tell_their_use(s):
    for program in ("train-worker", "train-coordinator", "train-shim", "traind"):
        path = str(sandbox.BIN / program)
        for words, status in ((["--help"], 0), (["--no-such-flag", "x"], 2)) + (
                (() if program == "traind" else (([], 2),))):
            result = subprocess.run([path, *words], env=s.env, capture_output=True, text=True, check=False)
            assert result.returncode == status, (program, words, result)
            assert program in (result.stderr if status else result.stdout), (program, words, result)


sandbox.main(__name__)
