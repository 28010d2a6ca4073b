"""The GPU's operations: against their references, under compute-sanitizer, and their speed.

Needs gpu_kernels_test and kernels_bench beside our other programs. Exit status: 0, 1, or 77 without a GPU."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

BIN = pathlib.Path(os.environ["TRAINCTL_BIN_DIR"])
TEST = BIN / "gpu_kernels_test"
TOOLS = ("memcheck", "racecheck", "initcheck")


def run(command, seconds):
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    return done.returncode, done.stdout + done.stderr


def sanitizer():
    places = [shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer"]
    return next((place for place in places if place and os.path.exists(place)), None)


def main():
    if not TEST.exists():
        print("built without CUDA: there is no gpu_kernels_test")
        return 77
    status, text = run([TEST, "--gtest_brief=1"], 100)
    if status != 0:
        print(text[-6000:])
        return status
    print("figure:", " · ".join(re.findall(r"seed \d+|PASSED.*", text)))
    checker = sanitizer()
    if checker is None:
        print("figure: no compute-sanitizer here")
    for tool in TOOLS if checker else ():
        command = [checker, "--tool", tool, "--error-exitcode", "1", TEST, "--small", "--gtest_brief=1"]
        status, text = run(command, 100)
        if status != 0:
            print(f"{tool}:\n{text[:3000]}\n{text[-3000:]}")
            return 1
        print(f"figure: {tool}: {text.strip().splitlines()[-1]}")
    status, text = run([BIN / "kernels_bench"], 100)
    print("\n".join("figure: " + line for line in text.strip().splitlines()))
    return status


if __name__ == "__main__":
    sys.exit(main())
