"""GPUs given to workers, and hardware that is not fit, with a driver that is not there (tests/fake)."""

import json
import os
import pathlib
import signal
import sys

import sandbox
from sandbox import expect, lines_of, wait_until

FAKE = pathlib.Path(os.environ["TRAINCTL_TESTS_DIR"]) / "fake"
SHOW = """
echo "seen $CUDA_VISIBLE_DEVICES local $LOCAL_RANK cpus $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
"""
WAITS = "echo up; while :; do sleep 1000; done"


class Hardware:
    """The fake driver's file, and the environment in which it is seen."""

    def __init__(self, s, gpus=2):
        self.path = s.folder / "hardware"
        self.gpus = {f"GPU-{s.mark[:8]}-{i}": {"name": "NVIDIA_H200", "memory": 143771, "numa": 0, "sm": 90,
                                               "pci": f"0000:{i + 1:02x}:00.0", "used": 4} for i in range(gpus)}
        self.lines = []
        self.env = {"LD_LIBRARY_PATH": str(FAKE), "TRAINCTL_FAKE_NVML": str(self.path)}
        self.write()

    def uuid(self, index):
        return list(self.gpus)[index]

    def write(self):
        gpus = [f"gpu uuid={uuid} " + " ".join(f"{k}={v}" for k, v in facts.items()) for uuid, facts in self.gpus.items()]
        new = self.path.with_suffix(".new")
        new.write_text("\n".join(self.lines + gpus) + "\n")
        new.rename(self.path)

    def says(self, *lines):
        self.lines += lines
        self.write()

    def topology(self, s, cpus):
        """A file in which each GPU is on a NUMA node of its own, with one of these CPUs."""
        text = [f"schema: 1\nnode: \"{os.uname().nodename}\"\nnuma_nodes:"]
        text += [f"  - {{id: {i}, cpus: \"{cpu}\", memory_mib: 1000}}" for i, cpu in enumerate(cpus)]
        text.append("gpus:")
        text += [f"  - {{index: {i}, name: \"NVIDIA H200\", uuid: \"{uuid}\", numa: {i}, sm: 90, memory_mib: 143771}}"
                 for i, uuid in enumerate(self.gpus)]
        return s.script("node.yaml", "\n".join(text) + "\n", 0o644)


def each_worker_has_its_gpu_and_its_cpus(s):
    hardware = Hardware(s)
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        raise sandbox.Skip("one CPU is all that is allowed here")
    done = s.run("launch", "--nproc-per-node", "gpu", "--topology", hardware.topology(s, cpus), s.shell(SHOW),
                 env=hardware.env)
    expect(done, 0)
    both = f"{hardware.uuid(0)},{hardware.uuid(1)}"
    for rank in range(2):
        assert lines_of(done.stdout, rank) == [f"seen {both} local {rank} cpus {cpus[rank]}"], done.stdout
    plan = s.report()["topology_plan"]
    assert [r["uuid"] for r in plan["nodes"][0]["ranks"]] == list(hardware.gpus), plan
    assert "NUMA node" in plan["nodes"][0]["binding_reason"], plan


def gpus_are_chosen_in_the_order_given_and_hidden_if_asked(s):
    hardware = Hardware(s, 4)
    a, b = hardware.uuid(3), hardware.uuid(1)
    done = s.run("launch", "--gpus", f"3,{b}", s.shell(SHOW), env=hardware.env)
    assert "local 1" in lines_of(done.stdout, 1)[0] and f"seen {a},{b} " in lines_of(done.stdout, 1)[0], done.stdout
    done = s.run("launch", "--gpus", "3,1", "--virtual-local-rank", s.shell(SHOW), env=hardware.env)
    assert f"seen {b} local 0" in lines_of(done.stdout, 1)[0], done.stdout
    done = s.run("launch", "--nproc-per-node", "gpu", "--numa-binding", "none", s.shell(SHOW),
                 env={**hardware.env, "CUDA_VISIBLE_DEVICES": "2"})
    assert f"seen {hardware.uuid(2)} local 0" in lines_of(done.stdout, 0)[0], done.stdout


def a_dry_run_shows_the_plan_and_whose_settings_hold(s):
    hardware = Hardware(s)
    done = s.run("launch", "--nproc-per-node", "gpu", "--dry-run", "/bin/true", env={**hardware.env, "NCCL_NVLS_ENABLE": "0"})
    expect(done, 0)
    for part in ("local rank 1", "GPU1", "yours      NCCL_NVLS_ENABLE=0",
                 f"CUDA_VISIBLE_DEVICES={hardware.uuid(0)},{hardware.uuid(1)}", "bound: not to CPUs"):
        assert part in done.stdout, (part, done.stdout)


def a_gpu_that_somebody_uses_is_refused_with_its_user(s):
    hardware = Hardware(s)
    hardware.says(f"process {hardware.uuid(1)} {os.getpid()} 2048")
    done = s.run("launch", "--nproc-per-node", "gpu", "/bin/true", env=hardware.env)
    expect(done, 5, f"GPU1 ({hardware.uuid(1)}) is in use by process {os.getpid()} (python3) of ", "2048 MiB", "--share-gpus")
    expect(s.run("launch", "--gpus", "0", "/bin/true", env=hardware.env), 0)
    expect(s.run("launch", "--gpus", "1", "--share-gpus", "/bin/true", env=hardware.env), 0)


def a_second_job_is_told_which_one_has_the_gpu(s):
    hardware = Hardware(s)
    first = s.start("launch", "--gpus", "0", s.shell(WAITS), env=hardware.env)
    assert "up" in first.stdout.readline()
    job = s.job().name
    expect(s.run("launch", "--nproc-per-node", "gpu", "/bin/true", env=hardware.env), 5, hardware.uuid(0), job)
    expect(s.run("launch", "--gpus", "1", "/bin/true", env=hardware.env), 0)
    first.send_signal(signal.SIGINT)
    first.wait(30)
    # Its shim may end a moment later.
    wait_until(lambda: s.run("launch", "--gpus", "0", "/bin/true", env=hardware.env).returncode == 0, "the GPU to be free")


def a_restart_waits_for_the_old_workers_memory(s):
    hardware = Hardware(s, 1)
    work = f"""
    if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then echo first; read nothing < go; exit 1; fi
    grep -q used=4 {hardware.path} || exit 9
    """
    os.mkfifo(s.folder / "go")
    job = s.start("launch", "--gpus", "0", "--max-restarts", "1", s.shell(work), env=hardware.env)
    assert "first" in job.stdout.readline()
    hardware.gpus[hardware.uuid(0)]["used"] = 5000
    hardware.write()
    (s.folder / "go").write_text("\n")
    wait_until(lambda: any("epoch 1" in line for line in iter(job.stderr.readline, "")), "the restart")
    wait_until(lambda: any("waits for the memory" in line and "5000 MiB are in use, 4 before the job (by memory alone" in line
                           for line in iter(job.stderr.readline, "")), "a word about it")
    hardware.gpus[hardware.uuid(0)]["used"] = 4
    hardware.write()
    out, err = job.communicate(timeout=30)
    assert job.returncode == 0, (out, err)


def a_driver_that_does_not_serve_is_named(s):
    hardware = Hardware(s)
    hardware.says("init 9")
    expect(s.run("launch", "--nproc-per-node", "gpu", "/bin/true", env=hardware.env), 5, "kernel driver is not loaded",
           "modprobe nvidia")
    hardware.lines = ["driver 535.54.03", "cuda 12020"]
    hardware.write()
    expect(s.run("launch", "--gpus", "0", "/bin/true", env={**hardware.env, "CUDA_VERSION": "13.0.1"}), 5,
           "driver 535.54.03 serves CUDA 12.2 at most", "CUDA 13.0.1, which needs driver 580.65.06")
    expect(s.run("launch", "--gpus", "0", "/bin/true", env={**hardware.env, "CUDA_VERSION": "12.6.0"}), 0)


def a_lost_gpu_is_left_out_or_refused(s):
    hardware = Hardware(s)
    hardware.gpus[hardware.uuid(1)]["open"] = 15
    hardware.write()
    expect(s.run("launch", "--gpus", "1", "/bin/true", env=hardware.env), 5, "GPU1 cannot be used", "fallen off the bus", "reboot")
    done = s.run("launch", "--nproc-per-node", "gpu", s.shell(SHOW), env=hardware.env)
    expect(done, 0, "GPU1: it has fallen off the bus")
    assert f"seen {hardware.uuid(0)} local 0" in done.stdout, done.stdout


def gpus_of_different_models_are_named(s):
    hardware = Hardware(s)
    hardware.gpus[hardware.uuid(1)]["name"] = "NVIDIA_A100-SXM4-80GB"
    hardware.write()
    expect(s.run("launch", "--nproc-per-node", "gpu", "/bin/true", env=hardware.env), 0,
           "different GPUs (NVIDIA A100-SXM4-80GB, NVIDIA H200)")


def what_fits_no_machine_or_another_is_refused(s):
    hardware = Hardware(s)
    run = lambda *words, **env: s.run("launch", *words, "/bin/true", env={**hardware.env, **env})
    expect(run("--gpus", "7"), 2, "--gpus: found \"7\"", "GPU0, GPU1")
    expect(run("--gpus", "0", "--nproc-per-node", "2"), 2, "2 workers, but only 1 GPU")
    expect(run("--gpus", "0", "--numa-binding", "socket"), 2, "--numa-binding: found \"socket\"")
    expect(run("--share-gpus"), 2, "--share-gpus")
    expect(run("--gpus", "0", NCCL_SOCKET_IFNAME="=ib7"), 5, "NCCL_SOCKET_IFNAME==ib7 fits no interface", "lo")
    other = Hardware(s)
    file = other.topology(s, [0, 0])
    pathlib.Path(file).write_text(pathlib.Path(file).read_text().replace(other.uuid(1), "GPU-of-another"))
    expect(run("--gpus", "0", "--topology", file), 5, "node.yaml: it has GPU GPU-of-another")


def an_error_that_breaks_the_gpu_ends_the_job(s):
    hardware = Hardware(s)
    job = s.start("launch", "--gpus", "0,1", "--max-restarts", "3", "--grace", "0", s.shell(WAITS), env=hardware.env)
    assert "up" in job.stdout.readline() and "up" in job.stdout.readline()
    hardware.says(f"xid {hardware.uuid(1)} 79")
    _, err = job.communicate(timeout=30)
    assert job.returncode == 1 and "GPU1: Xid 79 (GPU has fallen off the bus): reboot the node" in err, err
    report = s.report()
    assert report["first_failure"]["class"] == "hardware", report["first_failure"]
    assert "no other node" in report["reason"], report["reason"]


def an_error_that_the_program_made_is_told_with_its_end(s):
    hardware = Hardware(s)
    os.mkfifo(s.folder / "go")
    job = s.start("launch", "--gpus", "0", s.shell("echo up; read nothing < go; exit 1"), env=hardware.env)
    assert "up" in job.stdout.readline()
    hardware.says(f"xid {hardware.uuid(0)} 31")
    wait_until(lambda: any("Xid 31" in line for line in iter(job.stderr.readline, "")), "the error to be told")
    (s.folder / "go").write_text("\n")
    job.communicate(timeout=30)
    failure = s.report()["first_failure"]
    assert failure["class"] == "worker" and "exited with code 1; GPU0: Xid 31" in failure["message"] + s.report()["reason"], \
        json.dumps(s.report(), indent=1)


if not (FAKE / "libnvidia-ml.so.1").exists():
    print(f"skipped, because {FAKE} holds no fake driver")
    sys.exit(77)
sandbox.main(__name__)
