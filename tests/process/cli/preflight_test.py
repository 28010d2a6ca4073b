"""preflight with children that stand in for the real ones: what hangs, crashes or is wrong is a finding and never our hang."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sandbox  # noqa: E402
from sandbox import TRAINCTL, processes_with, wait_until  # noqa: E402

# Two GPUs. FAULT names what goes wrong: a check, then how.
CHILD = """#!/usr/bin/python3
import json, os, signal, sys, time

def say(**line):
    print(json.dumps(line), flush=True)

def at(check):
    say(begin=check)
    fault, _, how = os.environ.get("FAULT", "").partition("=")
    peers_off = os.environ.get("NCCL_P2P_DISABLE") == "1"
    if fault != check or (peers_off and os.environ.get("HEALS")):
        return 0
    if how == "hang":
        signal.pause()
    if how == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "error":
        say(error="out of GPU memory")
        sys.exit(1)
    return 7

words = sys.argv[1:]
if words[0] == "list":
    at("count the GPUs")
    for i in range(int(os.environ.get("GPUS", "2"))):
        say(gpu=i, name="Fake", pci=f"0000:0{i}:00.0", uuid=f"GPU-{i}", sm=90, memory_bytes=1 << 30)
elif words[0] == "memory":
    for i in range(int(os.environ.get("GPUS", "2"))):
        say(memory=i, bytes=1 << 20, wrong=at(f"memory of GPU {i}"), gigabytes_per_second=2000.0)
elif words[0] == "copies":
    for number, (a, b) in enumerate([(0, 1), (1, 0)]):
        if number >= int(words[1]):
            say(copy=a, to=b, bytes=1 << 20, wrong=at(f"copy from GPU {a} to GPU {b}"), peer_access=1, gigabytes_per_second=20.0)
else:
    folder, rank, ranks = words[1:]
    assert os.path.isdir(folder)
    say(all_reduce=int(rank), ranks=int(ranks), bytes=1 << 27, nccl="2.28.9", microseconds=10.0,
        wrong=at("all-reduce over 2 GPUs") if rank == "1" else 0, busbw=18.0)
"""


def preflight(s, *words, **env):
    folder = s.folder / "bin"
    if not folder.exists():
        folder.mkdir()
        shutil.copy(TRAINCTL, folder)
        (folder / "train-preflight").write_text(CHILD)
        (folder / "train-preflight").chmod(0o755)
    begin = time.monotonic()
    done = subprocess.run([folder / "trainctl", "preflight", "--json", "--deadline", "6s", *words], env={**s.env, **env},
                          capture_output=True, text=True, timeout=60)
    assert time.monotonic() - begin < 60, "it hangs with its child"
    assert not processes_with(s.mark), "a child is left"
    assert not [p for p in s.tmp.iterdir() if "preflight" in p.name], "its folder is left"
    return done, json.loads(done.stdout)


def verdicts(document):
    return {c["check"]: c["verdict"] for c in document["checks"]}


def peers(document):
    return [(x["who"], x["value"], x["reason"]) for x in document["settings"] if x["name"] == "NCCL_P2P_DISABLE"]


def a_node_that_does_what_it_says_is_fit(s):
    done, found = preflight(s)
    assert done.returncode == 0, done
    assert found["fit"] and set(verdicts(found).values()) == {"right"}, found
    assert len(found["checks"]) == 5 and found["nccl"] == "2.28.9", found
    assert not [x for x in peers(found) if x[0] == "set"], "nothing is set without evidence"


def a_copy_that_comes_out_wrong_turns_peer_access_off(s):
    done, found = preflight(s, FAULT="copy from GPU 0 to GPU 1")
    assert done.returncode == 5 and not found["fit"], done
    assert verdicts(found)["copy GPU0 to GPU1"] == "wrong" and verdicts(found)["copy GPU1 to GPU0"] == "right", found
    assert verdicts(found)["all-reduce over 2 GPUs with NCCL_P2P_DISABLE=1"] == "right", found
    [(who, value, reason)] = peers(found)
    assert (who, value) == ("set", "1") and "a copy from GPU0 to GPU1 came out wrong" in reason, found


def what_it_saw_counts_for_the_plan_until_it_is_run_again(s):
    def settings():
        done = subprocess.run([s.folder / "bin/trainctl", "topo", "--json"], env=s.env, capture_output=True, text=True, timeout=60)
        return [x["value"] for x in json.loads(done.stdout)["plan"]["settings"] if x["name"] == "NCCL_P2P_DISABLE"]
    preflight(s, FAULT="copy from GPU 0 to GPU 1")
    assert settings() == ["1"], settings()
    preflight(s)
    assert settings() != ["1"], settings()


def a_user_who_has_turned_it_off_may_train(s):
    done, found = preflight(s, FAULT="copy from GPU 0 to GPU 1", NCCL_P2P_DISABLE="1")
    assert done.returncode == 0 and found["fit"], done
    assert peers(found)[0][0] == "yours", found


def a_copy_that_hangs_is_found_and_the_others_are_still_made(s):
    done, found = preflight(s, FAULT="copy from GPU 0 to GPU 1=hang")
    assert done.returncode == 5, done
    assert verdicts(found)["copy from GPU 0 to GPU 1"] == "hung" and verdicts(found)["copy GPU1 to GPU0"] == "right", found
    assert "hung" in peers(found)[0][2], found


def an_all_reduce_that_works_only_without_peer_access_is_evidence(s):
    for how in ("hang", "crash", "wrong"):
        done, found = preflight(s, FAULT=f"all-reduce over 2 GPUs={how}", HEALS="1")
        assert done.returncode == 5, done
        assert verdicts(found)["all-reduce over 2 GPUs"] == {"hang": "hung", "crash": "failed", "wrong": "wrong"}[how], found
        assert peers(found)[0][:2] == ("set", "1") and "right with NCCL_P2P_DISABLE=1" in peers(found)[0][2], found


def an_all_reduce_that_never_works_is_no_evidence_against_peer_access(s):
    done, found = preflight(s, FAULT="all-reduce over 2 GPUs=error")
    assert done.returncode == 5 and not [x for x in peers(found) if x[0] == "set"], found
    assert "out of GPU memory" in done.stdout, done


def memory_that_loses_bits_is_told_with_what_to_do(s):
    done, found = preflight(s, FAULT="memory of GPU 1")
    [bad] = [c for c in found["checks"] if c["verdict"] == "wrong"]
    assert done.returncode == 5 and bad["check"] == "memory of GPU1" and "7 words" in bad["found"] and "take it out" in bad["remedy"], found


def a_driver_that_does_not_answer_is_a_finding(s):
    preflight(s)
    done = subprocess.run([s.folder / "bin/trainctl", "preflight", "--deadline", "6s"], capture_output=True, text=True,
                          env={**s.env, "FAULT": "count the GPUs=hang"}, timeout=60)
    assert done.returncode == 5 and "does not answer" in done.stderr, done


def one_gpu_has_no_pair_and_that_is_said(s):
    done, found = preflight(s, GPUS="1")
    assert done.returncode == 0 and found["fit"], done
    done = subprocess.run([s.folder / "bin/trainctl", "preflight"], capture_output=True, text=True, env={**s.env, "GPUS": "1"}, timeout=60)
    assert "no pair of GPUs is here" in done.stdout and done.stdout.endswith("\nfit\n"), done


def a_launch_that_asks_for_it_starts_only_on_a_fit_node(s):
    preflight(s)
    for name in ("traind", "train-coordinator", "train-shim"):
        shutil.copy(sandbox.BIN / name, s.folder / "bin")
    command = [s.folder / "bin/trainctl", "launch", "--preflight", "--no-python", "/bin/echo", "trained"]
    done = subprocess.run(command, env=s.env, capture_output=True, text=True, timeout=60, cwd=s.folder)
    assert done.returncode == 0 and "trained" in done.stdout and "right" not in done.stdout and "\nfit\n" in done.stderr, done
    done = subprocess.run(command, env={**s.env, "FAULT": "memory of GPU 1"}, capture_output=True, text=True, timeout=60, cwd=s.folder)
    assert done.returncode == 5 and "trained" not in done.stdout and "not fit" in done.stderr, done


def a_launch_follows_what_it_saw(s):
    hardware = s.folder / "hardware"
    hardware.write_text("".join(f"gpu uuid=GPU-{s.mark[:8]}-{i} name=NVIDIA_H200 memory=143771 numa=0 sm=90 pci=0000:0{i}:00.0 used=4\n"
                                for i in range(2)))
    driver = pathlib.Path(os.environ["TRAINCTL_TESTS_DIR"]) / "fake"
    if not (driver / "libnvidia-ml.so.1").exists():
        raise sandbox.Skip("the driver that is not there is in a build tree only")
    fake = {"LD_LIBRARY_PATH": str(driver), "TRAINCTL_FAKE_NVML": str(hardware)}
    preflight(s, FAULT="copy from GPU 0 to GPU 1", **fake)
    for name in ("traind", "train-coordinator", "train-shim"):
        shutil.copy(sandbox.BIN / name, s.folder / "bin")
    command = [s.folder / "bin/trainctl", "launch", "--gpus", "0,1", s.shell("echo disabled $NCCL_P2P_DISABLE")]
    done = subprocess.run(command, env={**s.env, **fake}, capture_output=True, text=True, timeout=60, cwd=s.folder)
    assert done.returncode == 0 and done.stdout.count("disabled 1\n") == 2, done
    wait_until(lambda: not processes_with(s.mark), "the end of the job's own daemon")
    preflight(s, **fake)
    done = subprocess.run(command, env={**s.env, **fake}, capture_output=True, text=True, timeout=60, cwd=s.folder)
    assert done.returncode == 0 and done.stdout.count("disabled\n") == 2, done


def a_machine_without_a_gpu_is_not_fit_and_says_why(s):
    if os.path.exists("/dev/nvidiactl"):
        raise sandbox.Skip("this machine has a GPU")
    done = s.run("preflight")
    assert done.returncode == 5, done
    assert "built without CUDA" in done.stderr or "no NVIDIA driver" in done.stderr, done


sandbox.main(__name__)
