#!/usr/bin/env python3
"""Runs the tests of a bundle (scripts/gpu-test) on this machine and prints one table.

  bundle/run [NAME…]     only these
Exit status: 0 none failed, 1 one did."""

import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
BUNDLE = HERE.parent.parent
TIMEOUT_S = 240
# What depends on the kernel and the machine, from the other tests, then what needs a GPU.
TESTS = {
    "verdict": HERE.parent / "process/cli/verdict_test.py",
    "stop": HERE.parent / "process/cli/stop_test.py",
    "containment": HERE / "containment_test.py",
    "binding": HERE / "binding_test.py",
    "pytorch": HERE / "pytorch_test.py",
    "preflight": HERE / "preflight_test.py",
    "nccl": HERE / "nccl_test.py",
    "first_line": HERE / "first_line.py",
    "kernels": HERE / "kernels.py",
    "models": HERE / "models.py",
}


def shown(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"({command[0]}: {error})"


def run(name, path):
    env = {**os.environ, "TRAINCTL_BIN_DIR": str(BUNDLE / "bin"), "TRAINCTL_TESTS_DIR": str(BUNDLE / "bin"),
           "TRAINCTL_SOURCE_DIR": str(BUNDLE), "PYTHONDONTWRITEBYTECODE": "1"}
    begin = time.monotonic()
    try:
        done = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
        verdict = {0: "passed", 77: "skipped"}.get(done.returncode, "FAILED")
        text = done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        verdict, text = "FAILED", f"{error.stdout}\n{error.stderr}\nnot over after {TIMEOUT_S} s"
    lines = text.strip().splitlines() or [""]
    if verdict == "FAILED":
        print(f"---- {name}\n" + "\n".join(lines[-60:]), flush=True)
    figures = [line.removeprefix("figure: ") for line in lines if line.startswith("figure: ")]
    return name, verdict, f"{time.monotonic() - begin:.1f} s", figures or ([lines[-1]] if verdict != "passed" else [""])


def main(names):
    print(shown(["nvidia-smi", "-L"]))
    print("kernel", os.uname().release, "· cores", os.cpu_count(), "·", sys.version.split()[0])
    rows = [run(name, path) for name, path in TESTS.items() if not names or name in names]
    print("| test | verdict | time | |\n|---|---|---|---|")
    for name, verdict, seconds, notes in rows:
        for i, note in enumerate(notes):
            print(f"| {name if i == 0 else ''} | {verdict if i == 0 else ''} | {seconds if i == 0 else ''} | {note[:160]} |")
    return 1 if any(verdict == "FAILED" for _, verdict, _, _ in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
