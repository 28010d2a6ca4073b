"""The NCCL communicator on all GPUs of this machine, and its all-reduce beside NCCL's own calls."""

import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "process/cli"))
import sandbox  # noqa: E402
from sandbox import lines_of  # noqa: E402

TESTS = pathlib.Path(sandbox.os.environ["TRAINCTL_TESTS_DIR"])


def gpus():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except OSError:
        return 0
    return listed.stdout.count("UUID: GPU-") if listed.returncode == 0 else 0


def shown(done):
    lines = lines_of(done.stdout, 0)
    print("\n".join(lines))
    assert done.returncode == 0, done.stdout + done.stderr


def every_collective_is_right_and_an_abort_wakes_everybody(s):
    shown(s.run("launch", "--nproc-per-node", str(gpus()), str(TESTS / "nccl_check"), deadline_s=120))


def two_ranks(s, *words):
    """On one GPU: NCCL takes them for two nodes and lets them talk by TCP."""
    folder = s.folder / f"meet{len(list(s.folder.iterdir()))}"
    folder.mkdir()
    ranks = [subprocess.Popen([TESTS / "nccl_check", folder, str(rank), "2", *words], env={**s.env, "NCCL_HOSTID": f"node{rank}"},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
    return [(rank.communicate(timeout=100)[0], rank.returncode) for rank in ranks]


def two_ranks_on_one_gpu_sum_right(s):
    for text, status in two_ranks(s):
        print(text)
        assert status == 0, text


def a_rank_that_is_killed_in_an_all_reduce_ends_it_for_the_other(s):
    (text, status), (_, killed) = two_ranks(s, "killed")
    print(text)
    assert status == 0 and killed == -signal.SIGKILL, text


def an_all_reduce_costs_what_nccl_costs(s):
    done = s.run("launch", "--nproc-per-node", str(gpus()), str(TESTS / "allreduce_pair"), deadline_s=200)
    shown(done)
    rows = [line.split() for line in lines_of(done.stdout, 0) if len(line.split()) == 8 and line.split()[0].isdigit()]
    assert rows, done.stdout
    small, large = rows[0], rows[-1]
    print(f"figure: all-reduce over {gpus()} GPUs, {small[0]} bytes: {small[2]} us polled, {small[3]} us blocking, "
          f"NCCL's own calls {small[1]} us")
    print(f"figure: {int(large[0]) >> 20} MiB: {large[2]} us polled, {large[3]} us blocking, NCCL's own calls {large[1]} us, "
          f"busbw {large[5]} GB/s")


def bench_shows_a_table_and_no_sum_is_wrong(s):
    done = s.run("bench", "allreduce", deadline_s=120)
    shown(done)
    rows = [line.split() for line in lines_of(done.stdout, 0) if line.split()[0].isdigit()]
    assert rows and all(row[5] == "0" for row in rows), done.stdout
    assert "NCCL" in lines_of(done.stdout, 0)[0], done.stdout
    print(f"figure: trainctl bench allreduce, {int(rows[-1][0]) >> 20} MiB: busbw {rows[-1][4]} GB/s")


if gpus() == 0:
    print("skipped, because there is no GPU")
    sys.exit(77)
if not (TESTS / "nccl_check").exists():
    print("skipped, because this build is without CUDA")
    sys.exit(77)
sandbox.main(__name__)
