"""An unmodified PyTorch program with NCCL, one worker for each GPU, and its restart after a kill."""

import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "process/cli"))
import sandbox  # noqa: E402

TRIES = 3
PROGRAM = """
import os, signal, sys, time
import torch, torch.distributed as dist
local = int(os.environ["LOCAL_RANK"])
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
torch.cuda.set_device(local)
dist.init_process_group("nccl", device_id=torch.device("cuda", local))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(), device_ids=[local])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    optimizer.zero_grad()
    model(torch.randn(16, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    torch.cuda.synchronize()
    if step == 0 and dist.get_rank() == 0:
        print(f"stepped {attempt} {time.time()}", flush=True)
    if step == 10 and attempt == 0 and dist.get_rank() == dist.get_world_size() - 1:
        print(f"killed {attempt} {time.time()}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
"""


def gpus():
    try:
        import torch
        return torch.cuda.device_count()
    except ImportError:
        return 0


def times(text, word):
    return [float(line.split()[-1]) for line in text.splitlines() if f"{word} " in line]


def a_killed_worker_is_replaced_and_training_goes_on(s):
    program = s.script("train.py", PROGRAM)
    recovered = []
    for _ in range(TRIES):
        begin = time.time()
        done = s.run("launch", "--nproc-per-node", str(gpus()), "--max-restarts", "2", program, deadline_s=120,
                     env={"PYTHON_EXEC": sys.executable, "TORCHINDUCTOR_CACHE_DIR": str(s.folder / "inductor")})
        assert done.returncode == 0, done.stdout + done.stderr
        first, second = times(done.stdout, "stepped")
        recovered.append(second - times(done.stdout, "killed")[0])
        cold = first - begin
    print(f"figure: {gpus()} GPUs, kill to next step: {', '.join(f'{t:.2f}' for t in recovered)} s; "
          f"cold start to first step {cold:.2f} s")
    used = subprocess.run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"], capture_output=True, text=True)
    assert not used.stdout.strip(), f"GPU processes are left: {used.stdout}"


if gpus() == 0:
    print("skipped, because there is no GPU that PyTorch can use")
    sys.exit(77)
sandbox.main(__name__)
