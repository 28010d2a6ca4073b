"""From the start of a launch to the first line of the last of 8 workers, beside torchrun on the same machine.

Each worker is a Python program without PyTorch that writes the time; medians of some runs."""

import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(os.environ["TRAINCTL_BIN_DIR"])
WORKERS = 8
PROGRAM = "import os, time\nopen(os.path.join(os.environ['MARKS'], os.environ['RANK']), 'w').write(repr(time.time()))\n"


def seconds(command):
    with tempfile.TemporaryDirectory() as folder:
        marks = pathlib.Path(folder) / "marks"
        marks.mkdir()
        program = pathlib.Path(folder) / "first_line.py"
        program.write_text(PROGRAM)
        env = {**os.environ, "MARKS": str(marks), "XDG_STATE_HOME": folder}
        begin = time.time()
        done = subprocess.run([*command, program], env=env, capture_output=True, text=True, timeout=120)
        if done.returncode != 0 or len(list(marks.iterdir())) != WORKERS:
            raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
        return max(float(path.read_text()) for path in marks.iterdir()) - begin


def main():
    ours = [seconds([BIN / "trainctl", "launch", "--nproc-per-node", str(WORKERS)]) for _ in range(7)]
    print(f"figure: trainctl launch, {WORKERS} workers: {statistics.median(ours) * 1e3:.0f} ms "
          f"(worst {max(ours) * 1e3:.0f})")
    if shutil.which("torchrun") is None:
        print("figure: no torchrun here to compare with")
        return 0
    peer = [seconds(["torchrun", "--standalone", "--nproc_per_node", str(WORKERS)]) for _ in range(3)]
    print(f"figure: torchrun: {statistics.median(peer) * 1e3:.0f} ms, {statistics.median(peer) / statistics.median(ours):.0f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
