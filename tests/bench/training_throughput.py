#!/usr/bin/python3
"""Training samples per second of 2 workers against PyTorch DDP with 2 processes of one thread.

Same model, batch, optimizer and data; gradient_as_bucket_view for the peer. Ours and the peer take
turns. Figure of ours: report.json's samples_per_second (first to last progress of the epoch); of the
peer: samples after its warm-up over wall time. Ratio: median over the pairs of ours / peer.
"""

import argparse
import json
import statistics
import subprocess
import sys

import workbench as wb

ADAMW = {"kind": "adamw", "lr": 1e-3, "weight_decay": 0.01}
TEXT = wb.EXAMPLES / "text" / "harbour.txt"
JOBS = {
    "mlp": (1.2, {
        "model": {"kind": "mlp", "hidden": [512, 256]},
        "data": {"kind": "fashion_mnist", "path": "/usr/share/datasets/fashion-mnist"},
        "optimizer": ADAMW, "batch": {"global": 256, "micro": 128}, "steps": 1500, "seed": 1}),
    "gpt": (1.05, {
        "model": {"kind": "gpt", "layers": 4, "width": 128, "heads": 4, "context": 128},
        "data": {"kind": "text", "path": str(TEXT)},
        "optimizer": ADAMW, "batch": {"global": 32, "micro": 16}, "steps": 120, "seed": 1}),
}


def need_openblas():
    """libblas.so.3 is what NumPy and PyTorch of Debian load; the reference BLAS is ten times slower."""
    listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    paths = [line.split("=> ")[1] for line in listing.splitlines() if line.strip().startswith("libblas.so.3 ")]
    found = wb.pathlib.Path(paths[0]).resolve() if paths else None
    if found is None or "openblas" not in str(found):
        raise wb.Refused(f"libblas.so.3 resolves to {found}, not to OpenBLAS (apt-get install "
                         "libopenblas-pthread-dev, then update-alternatives --config libblas.so.3-x86_64-linux-gnu)")


def ours(job):
    with wb.scratch() as folder:
        file = folder / "job.yaml"
        file.write_text(json.dumps(job))
        report, _ = wb.run_job(folder, file)
        return report["samples_per_second"]


def peer(job):
    with wb.scratch() as folder:
        file = folder / "job.json"
        file.write_text(json.dumps(job))
        env = wb.environment(folder, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
        script = wb.SOURCE / "tests" / "bench" / "ddp_peer.py"
        done = subprocess.run(wb.torchrun(2, str(script), "--job", str(file)), env=env, capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=600)
        lines = [line for line in done.stdout.splitlines() if "samples_per_second" in line]
        if done.returncode != 0 or not lines:
            raise RuntimeError(f"the peer ended with {done.returncode}:\n{done.stderr[-2000:]}")
        result = json.loads(lines[0][lines[0].index("{"):])
        if not any("openblas" in path for path in result["blas"]):
            raise wb.Refused(f"the peer computed with {result['blas']}, not with OpenBLAS")
        return result["samples_per_second"]


def measure(models, pairs):
    wb.need(wb.BIN / "trainctl", TEXT)
    wb.need_torch()
    need_openblas()
    wb.need_quiet_machine()
    table = wb.Table()
    for name in models:
        least, train = JOBS[name]
        job = {"name": f"throughput-{name}", "nodes": {"workers": 2}, "train": train}
        found = []
        for i in range(pairs):
            pair = (ours(job), peer(job)) if i % 2 == 0 else (peer(job), ours(job))[::-1]
            print(f"{name} pair {i + 1}: ours {pair[0]:.0f}, peer {pair[1]:.0f} samples/s", flush=True)
            found.append(pair)
        ratios = [a / b for a, b in found]
        ratio = statistics.median(ratios)
        table.add(f"{name} training, 2 workers", f"{statistics.median(a for a, _ in found):.0f} samples/s",
                  f"{statistics.median(b for _, b in found):.0f} samples/s",
                  f"{ratio:.2f} x ({min(ratios):.2f} to {max(ratios):.2f})", f">= {least} x", ratio >= least)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=list(JOBS), action="append", help="may be given twice; default both")
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    sys.exit(wb.main(lambda: measure(args.model or list(JOBS), args.pairs)))
