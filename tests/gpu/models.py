"""Matrix products, attention and a GPT on the GPU: beside the CPU's results, the same bits twice, and how fast.

Needs cuda_products_test, cuda_gpt_test and cuda_gpt_bench beside our other programs. Exit status: 0, 1, or 77 without CUDA."""

import os
import pathlib
import re
import subprocess
import sys

BIN = pathlib.Path(os.environ["TRAINCTL_BIN_DIR"])
TESTS = ("cuda_products_test", "cuda_gpt_test")
RUNS = (("32", "60", "bf16"), ("32", "40", "bf16", "1"), ("32", "40", "fp16"))


def main():
    if not (BIN / TESTS[0]).exists():
        print("built without CUDA: there is no cuda_products_test")
        return 77
    for test in TESTS:
        done = subprocess.run([BIN / test, "--gtest_brief=1"], capture_output=True, text=True, timeout=100)
        text = done.stdout + done.stderr
        if done.returncode != 0:
            print(text[-6000:])
            return 1
        print("figure:", test, " · ".join(re.findall(r"PASSED.*|SKIPPED.*", text)[:1]))
        for line in re.findall(r".*largest difference.*|fp16: .*", text):
            print("figure:", line)
    for arguments in RUNS:
        done = subprocess.run([BIN / "cuda_gpt_bench", *arguments], capture_output=True, text=True, timeout=100)
        print("figure:", (done.stdout + done.stderr).strip())
        if done.returncode != 0:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
