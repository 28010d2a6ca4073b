"""preflight on real GPUs: fit, in seconds, and the GPUs are free again afterwards."""

import json
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "process/cli"))
import sandbox  # noqa: E402
from sandbox import BIN  # noqa: E402

MOST_SECONDS = 60


def used_by():
    done = subprocess.run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"], capture_output=True, text=True)
    return done.stdout.strip()


def this_machine_is_fit(s):
    begin = time.monotonic()
    done = s.run("preflight", deadline_s=MOST_SECONDS)
    print(done.stdout)
    assert done.returncode == 0 and done.stdout.endswith("\nfit\n"), done.stdout + done.stderr
    print(f"figure: preflight: {time.monotonic() - begin:.1f} s")
    for line in done.stdout.splitlines():
        if "all-reduce" in line or "copy" in line or "memory" in line:
            print(f"figure: {' '.join(line.split())}")
    assert not used_by(), f"GPU processes are left: {used_by()}"


def its_document_names_every_gpu(s):
    done = s.run("preflight", "--json", deadline_s=MOST_SECONDS)
    document = json.loads(done.stdout)
    assert document["fit"] and document["nccl"].startswith("2."), document
    count = len(document["gpus"])
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    assert all(gpu["uuid"] in listed for gpu in document["gpus"]), document
    assert len([c for c in document["checks"] if c["check"].startswith("copy")]) == count * (count - 1), document


if not (BIN / "train-preflight").exists():
    print("skipped, because this build is without CUDA")
    sys.exit(77)
if subprocess.run(["sh", "-c", "command -v nvidia-smi >/dev/null && nvidia-smi -L"], capture_output=True).returncode != 0:
    print("skipped, because there is no GPU")
    sys.exit(77)
sandbox.main(__name__)
