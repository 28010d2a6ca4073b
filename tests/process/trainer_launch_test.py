#!/usr/bin/python3
"""Several train-workers under trainctl launch: equal for any number of workers, and after kill -9."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ["TRAINCTL_BIN_DIR"])
TEXT = pathlib.Path(os.environ["TRAINCTL_SOURCE_DIR"]) / "deploy/examples/text/harbour.txt"
DEADLINE = 90  # seconds for any one job


def process_environment(pid):
    words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(word.decode(errors="replace").partition("=")[::2] for word in words if word)


class Launch(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.checkpoints = self.folder / "checkpoints"
        self.losses = self.folder / "losses"

    def start(self, workers, steps=50, every=None):
        config = {
            "model": {"kind": "gpt", "layers": 2, "width": 32, "heads": 2, "context": 32, "dropout": 0.1},
            "data": {"kind": "text", "path": str(TEXT)},
            "optimizer": {"kind": "adamw", "lr": 1e-3, "clip": 1.0, "schedule": {"warmup": 5, "decay": "cosine"}},
            "batch": {"global": 16, "micro": 3}, "steps": steps, "seed": 3, "drift_check_every": 20}
        flags = []
        if every:
            config["checkpoint"] = {"dir": str(self.checkpoints), "every_steps": every}
            flags = ["--checkpoint-dir", self.checkpoints, "--max-restarts", "3"]
        (self.folder / "config.json").write_text(json.dumps(config))
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINCTL_", "PET_"))}
        return subprocess.Popen(
            [BIN / "trainctl", "launch", *flags, "--nproc-per-node", str(workers), BIN / "train-worker", "--config",
             self.folder / "config.json", "--loss-file", self.losses],
            env=dict(env, XDG_STATE_HOME=str(self.folder / "state"), OMP_NUM_THREADS="1"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self, process):
        text, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 0, text)
        return text

    def train(self, workers, **more):
        self.losses.unlink(missing_ok=True)
        text = self.finish(self.start(workers, **more))
        return [float(line.split(",")[1]) for line in self.losses.read_text().splitlines()], text

    def digest(self, text):
        return re.findall(r"parameters (xxh3-128:[0-9a-f]{32})", text)[-1]

    def worker(self, rank):
        """Pid of this test's worker of that rank."""
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if entry.joinpath("exe").resolve() != (BIN / "train-worker").resolve():
                    continue
                env = process_environment(entry.name)
                if env.get("TRAINCTL_CHECKPOINT_DIR") == str(self.checkpoints) and env["RANK"] == str(rank):
                    return int(entry.name)
            except (OSError, KeyError):
                continue  # it ended meanwhile
        return None

    def wait_for(self, what, condition):
        deadline = time.monotonic() + DEADLINE
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"waiting for {what}")
            time.sleep(0.01)

    def test_losses_are_equal_for_any_number_of_workers_and_the_same_bits_twice(self):
        one, _ = self.train(1)
        self.assertEqual(len(one), 50)
        for workers in (2, 4):
            losses, text = self.train(workers)
            self.assertEqual(len(losses), 50)
            for step, (a, b) in enumerate(zip(losses, one)):
                self.assertLess(abs(a - b) / b, 1e-5, f"step {step + 1} of {workers} workers")
        again, text_again = self.train(4)
        self.assertEqual(again, losses)
        self.assertEqual(self.digest(text_again), self.digest(text))

    def test_killed_worker_leaves_no_trace_in_the_result(self):
        _, text = self.train(2, steps=200)
        digest = self.digest(text)
        chance = random.Random(11)
        for rank in (0, 1, 0):
            shutil.rmtree(self.checkpoints, ignore_errors=True)
            self.losses.unlink(missing_ok=True)
            process = self.start(2, steps=200, every=15)
            step = chance.randrange(5, 100)
            self.wait_for("losses", lambda: self.losses.exists() and self.losses.read_text().count("\n") >= step)
            victim = self.worker(rank)
            self.assertIsNotNone(victim)
            os.kill(victim, signal.SIGKILL)
            text = self.finish(process)
            self.assertEqual(self.digest(text), digest, f"rank {rank} killed after step {step}")
            self.assertIn("epoch 1", text)

    def test_damaged_checkpoint_is_told_and_the_previous_one_used(self):
        _, text = self.train(2, steps=40, every=10)
        digest = self.digest(text)
        shard = self.checkpoints / "step-000000040" / "shard-00001-of-00002.safetensors"
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)
        losses, text = self.train(2, steps=40, every=10)
        self.assertIn("step 40 is damaged", text)
        self.assertIn("its digest is", text)
        self.assertEqual(len(losses), 10)
        self.assertEqual(self.digest(text), digest)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
