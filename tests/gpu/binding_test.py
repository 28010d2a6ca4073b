"""One worker for each GPU for real: it sees its own, where the plan says, alone, and gives it back before the next."""

import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "process/cli"))
import sandbox  # noqa: E402
from sandbox import expect, lines_of, wait_until  # noqa: E402

# A CUDA context and memory by the driver's own library: PyTorch takes seconds to load.
CUDA = """
import ctypes, os, re, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def check(code, what):
    if code != 0:
        sys.exit(f"{what}: CUDA error {code}")
check(cuda.cuInit(0), "cuInit")
count = ctypes.c_int()
check(cuda.cuDeviceGetCount(ctypes.byref(count)), "count")
device = ctypes.c_int()
check(cuda.cuDeviceGet(ctypes.byref(device), int(os.environ.get("LOCAL_RANK", "0"))), "device")
uuid = (ctypes.c_ubyte * 16)()
check(cuda.cuDeviceGetUuid(ctypes.byref(uuid), device), "uuid")
text = bytes(uuid).hex()
context = ctypes.c_void_p()
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device), "context")
memory = ctypes.c_uint64()
check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(int(os.environ.get("GIB", "2")) << 30)), "memory")
cpus = re.search(r"Cpus_allowed_list:\\s*(\\S+)", open("/proc/self/status").read()).group(1)
print("uuid GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])), "devices", count.value, "cpus", cpus,
      flush=True)
"""
HOLD = CUDA + "\nopen(os.environ.get('READY', '/dev/null'), 'w').write('x')\nwhile True: time.sleep(1000)\n"
FREE = """
free, total = ctypes.c_size_t(), ctypes.c_size_t()
check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "free")
print("free", free.value >> 20, "of", total.value >> 20, flush=True)
"""


def smi(query, what="gpu"):
    done = subprocess.run(["nvidia-smi", f"--query-{what}={query}", "--format=csv,noheader,nounits"], capture_output=True,
                          text=True, timeout=60)
    return [[field.strip() for field in line.split(",")] for line in done.stdout.strip().splitlines()]


def plan(s, *words):
    done = s.run("launch", *words, "--dry-run", "--json", "/bin/true")
    expect(done, 0)
    return json.loads(done.stdout.splitlines()[-1])["transport_plan"]["nodes"][0]


def python(s, text, name="work.py"):
    return s.script(name, text)


def launch(s, *words, **kwargs):
    kwargs["env"] = {"PYTHON_EXEC": sys.executable, **kwargs.get("env", {})}
    return s.run("launch", *words, **kwargs)


def a_worker_sees_its_gpu_where_the_plan_puts_it(s):
    node = plan(s, "--nproc-per-node", "gpu")
    done = launch(s, "--nproc-per-node", "gpu", python(s, CUDA))
    expect(done, 0)
    for rank, planned in enumerate(node["ranks"]):
        uuid, devices, cpus = re.match(r"uuid (\S+) devices (\d+) cpus (\S+)", lines_of(done.stdout, rank)[0]).groups()
        assert uuid == planned["uuid"] and int(devices) == len(node["ranks"]), (uuid, devices, node)
        assert not planned["cpus"] or cpus == planned["cpus"], (cpus, planned)
        print(f"figure: rank {rank}: {planned['device']}, CPUs {cpus}; {node['binding_reason']}")
    alone = launch(s, "--gpus", node["ranks"][-1]["uuid"], "--virtual-local-rank", python(s, CUDA))
    expect(alone, 0)
    assert f"uuid {node['ranks'][-1]['uuid']} devices 1" in alone.stdout, alone.stdout


def a_second_job_and_a_busy_gpu_are_refused(s):
    ready = s.folder / "ready"
    first = s.start("launch", "--gpus", "0", python(s, HOLD), env={"PYTHON_EXEC": sys.executable, "READY": str(ready)})
    wait_until(ready.exists, "the first job to have its GPU")
    second = launch(s, "--gpus", "0", "/bin/true")
    expect(second, 5, "is in use by", s.job().name if "job" in second.stderr else "")
    print("figure: second job: " + second.stderr.strip().splitlines()[-1])
    first.terminate()
    first.wait(30)
    ready.unlink()
    other = subprocess.Popen([sys.executable, python(s, HOLD, "other.py")], env={**s.env, "READY": str(ready)})
    wait_until(ready.exists, "another process to have the GPU")
    shown = smi("pid,used_memory", "compute-apps")
    done = launch(s, "--gpus", "0", "/bin/true")
    other.kill()
    other.wait()
    print(f"figure: nvidia-smi shows {shown}, trainctl: {done.returncode} {done.stderr.strip()[-300:]}")
    if shown:
        expect(done, 5, "is in use by process", "--share-gpus")


def memory_is_back_before_a_restart(s):
    text = CUDA.replace('print("uuid', FREE + 'print("uuid') + """
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    import signal
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = launch(s, "--gpus", "0", "--max-restarts", "1", python(s, text), env={"GIB": "20"}, deadline_s=90)
    expect(done, 0)
    free = [int(line.split()[1]) for line in lines_of(done.stdout, 0) if line.startswith("free")]
    assert len(free) == 2 and free[1] > free[0] - 64, done.stdout
    log = "".join((job / "traind.log").read_text() for job in s.jobs())
    freed = [line for line in log.splitlines() if "free again" in line]
    waited = freed[0].split("the GPUs are", 1)[1].strip() if freed else "free as soon as the worker was gone"
    print(f"figure: memory at a restart: {waited}; {free[0]} and {free[1]} MiB free")


def nobody_but_workers_creates_a_context(s):
    ready = s.folder / "ready"
    job = s.start("launch", "--gpus", "0", python(s, HOLD), env={"PYTHON_EXEC": sys.executable, "READY": str(ready)})
    wait_until(ready.exists, "the worker to have its GPU")
    ours = {str(pid): command.split()[0].decode().rsplit("/", 1)[-1] for pid, command in sandbox.processes_with(s.mark).items()}
    shown = [ours.get(pid, f"process {pid}") for pid, in smi("pid", "compute-apps")]
    job.terminate()
    job.wait(30)
    print(f"figure: with a context: {', '.join(shown) or 'the driver shows none'}; without: "
          f"{', '.join(name for name in sorted(set(ours.values())) if name not in shown)}")
    assert {"trainctl", "traind", "train-coordinator", "train-shim"} <= set(ours.values()), ours
    assert not [name for name in shown if name.startswith("train")] and len(shown) <= 1, shown


def errors_of_the_gpus_can_be_listened_for(s):
    done = launch(s, "--gpus", "0", python(s, CUDA))
    expect(done, 0)
    log = "".join((job / "traind.log").read_text() for job in s.jobs())
    said = [line for line in log.splitlines() if "will not be told" in line]
    print("figure: errors of the GPUs " + (said[0] if said else "are told by the driver"))


def gpus():
    try:
        return smi("uuid")
    except (OSError, subprocess.SubprocessError):
        return []


if not gpus():
    print("skipped, because there is no GPU here")
    sys.exit(77)
sandbox.main(__name__)
