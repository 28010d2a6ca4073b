#!/usr/bin/python3
"""train-worker as a real process, alone: killed at random moments, without room, with bad input."""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

WORKER = pathlib.Path(os.environ["TRAINCTL_BIN_DIR"]) / "train-worker"
TEXT = pathlib.Path(os.environ["TRAINCTL_SOURCE_DIR"]) / "deploy/examples/text/harbour.txt"
DEADLINE = 60  # seconds for any one run


def environment():
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    return {k: v for k, v in os.environ.items() if k not in names and not k.startswith("TRAINCTL_")}


class TrainWorker(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        self.addCleanup(shutil.rmtree, self.folder)
        self.checkpoints = self.folder / "checkpoints"

    def config(self, steps=60, every=5, **more):
        config = {
            "model": {"kind": "gpt", "layers": 1, "width": 32, "heads": 2, "context": 32, "dropout": 0.1},
            "data": {"kind": "text", "path": str(TEXT)},
            "optimizer": {"kind": "adamw", "lr": 1e-3, "clip": 1.0, "schedule": {"warmup": 5, "decay": "cosine"}},
            "batch": {"global": 16, "micro": 8}, "steps": steps, "seed": 3,
            "checkpoint": {"dir": str(self.checkpoints), "every_steps": every, "keep": 2}, **more}
        path = self.folder / "config.json"
        path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
        return path

    def start(self, config, *arguments, before=(), env=None):
        return subprocess.Popen([*before, WORKER, "--config", config, *arguments], env=env or environment(),
                                stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def finish(self, process):
        out, err = process.communicate(timeout=DEADLINE)
        return process.returncode, out + err

    def run_worker(self, config, *arguments, **more):
        return self.finish(self.start(config, *arguments, **more))

    def digest(self, text):
        return re.search(r"parameters (xxh3-128:[0-9a-f]{32})", text).group(1)

    def fails(self, config, status, *words, **more):
        code, text = self.run_worker(config, **more)
        self.assertEqual(code, status, text)
        lines = [line for line in text.splitlines() if line.startswith("train-worker: ")]
        self.assertEqual(len(lines), 1, text)
        for word in words:
            self.assertIn(word, lines[0])

    def kill_after(self, process, losses, lines, delay):
        """Kills the process once the loss file has so many lines; False: it ended before."""
        deadline = time.monotonic() + DEADLINE
        while process.poll() is None:
            self.assertLess(time.monotonic(), deadline, f"waiting for {lines} losses")
            if losses.exists() and losses.read_bytes().count(b"\n") >= lines:
                time.sleep(delay)  # anywhere within a step or a commit
                process.kill()
                return process.wait() < 0
            time.sleep(0.001)
        return False

    def test_killed_at_random_moments_it_ends_with_the_same_bits(self):
        code, text = self.run_worker(self.config(checkpoint=None), "--loss-file", self.folder / "undisturbed")
        self.assertEqual(code, 0, text)
        digest = self.digest(text)
        self.assertEqual(self.digest(self.run_worker(self.config(checkpoint=None))[1]), digest)
        expected = dict(line.split(",") for line in (self.folder / "undisturbed").read_text().split())
        chance = random.Random(5)
        kills = 0
        for every in range(1, 7):
            shutil.rmtree(self.checkpoints, ignore_errors=True)
            losses = self.folder / f"losses{every}"
            lines = 0
            while True:
                process = self.start(self.config(every=every), "--loss-file", losses)
                lines += chance.randrange(8, 20)  # more than `every`: each life gets further
                killed = self.kill_after(process, losses, lines, chance.uniform(0, 0.01))
                out, err = process.communicate(timeout=DEADLINE)
                if not killed:
                    break
                kills += 1
            self.assertEqual(process.returncode, 0, out + err)
            self.assertEqual(self.digest(out + err), digest)
            for line in losses.read_text().splitlines():
                step, comma, loss = line.partition(",")
                if step in expected and comma and len(loss) == len(expected[step]):
                    self.assertEqual(loss, expected[step], f"step {step}")
        self.assertGreater(kills, 6)

    def on_disk(self, size, *preparations):
        """Words in front of a command that runs it with a file system of that size, after these shell commands,
        and self.checkpoints there."""
        mount = self.folder / "small"
        mount.mkdir(exist_ok=True)
        self.checkpoints = mount / "checkpoints"
        script = " && ".join([f"mount -t tmpfs -o size={size} tmpfs {mount}", f"cd {mount}", *preparations, 'exec "$@"'])
        inside = ["unshare", "-rm", "sh", "-c", script, "sh"]
        if subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
            self.skipTest("skipped, because a file system of its own needs user namespaces")
        return inside

    def test_run_whose_last_state_cannot_be_saved_has_failed(self):
        # One checkpoint (about 260 kB) fits, two do not.
        inside = self.on_disk("400k")
        config = self.config(steps=10, every=2, checkpoint={
            "dir": str(self.checkpoints), "every_steps": 2, "keep": 9})
        error = self.folder / "error.json"
        code, text = self.run_worker(config, before=inside,
                                     env=dict(environment(), TORCHELASTIC_ERROR_FILE=str(error)))
        self.assertEqual(code, 1, text)
        self.assertEqual(text.count("training goes on"), 1, text)
        self.assertIn("No space left on device; free space there", text)
        self.assertIn("validation: loss", text)
        self.assertIn("the state after the last step, 10, could not be saved and is lost", text)
        self.assertEqual(json.loads(error.read_text())["message"]["extraInfo"]["class"], "disk")

    def test_saving_that_works_again_is_told_and_the_run_succeeds(self):
        inside = self.on_disk("1m", "head -c 1M /dev/zero > ballast")
        process = self.start(self.config(steps=3000, every=20), before=inside)
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "training goes on" in line:
                os.remove(f"/proc/{process.pid}/root/{self.folder}/small/ballast")
        self.assertEqual(process.wait(DEADLINE), 0, lines)
        text = "".join(lines)
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(text.count("training goes on"), 1, text)
        self.assertEqual(text.count("checkpoints are saved again"), 1, text)

    def test_folder_that_cannot_be_written_is_found_before_the_first_step(self):
        losses = self.folder / "losses"
        inside = self.on_disk("1m", "mkdir checkpoints", f"mount -o remount,ro {self.folder}/small")
        code, text = self.run_worker(self.config(), "--loss-file", losses, before=inside)
        self.assertEqual(code, 2, text)
        self.assertIn(str(self.checkpoints), text)
        self.assertIn("Read-only file system; give a checkpoint folder that this user may write", text)
        self.assertFalse(losses.exists())

    def test_finished_job_says_that_nothing_is_left(self):
        code, text = self.run_worker(self.config(steps=10))
        self.assertEqual(code, 0, text)
        code, again = self.run_worker(self.config(steps=10))
        self.assertEqual(code, 0, again)
        self.assertIn("nothing is left to train: ", again)
        self.assertEqual(self.digest(again), self.digest(text))

    def test_bad_input_ends_in_one_message(self):
        self.fails(self.folder / "none.json", 2, "none.json", "No such file")
        self.fails(self.config(seeds=1), 2, "seeds is not known")
        self.fails(self.config(data={"kind": "text", "path": str(self.folder / "gone")}), 2, "gone", "No such file")
        self.fails(self.config(data={"kind": "fashion_mnist", "path": str(self.folder)}), 2,
                   "apt-get install dataset-fashion-mnist")
        self.fails(self.config(data={"kind": "tokens", "path": str(TEXT)}), 2, "wrong magic")
        self.fails(self.config(plan_in=str(TEXT)), 2, "use the bucket plan of")
        self.fails(self.config(checkpoint={"dir": "/proc/checkpoints"}), 2, "make the checkpoint folder")
        self.fails(self.config(), 2, "RESUME_FROM", env=dict(environment(), TRAINCTL_RESUME_FROM="/tmp/x"))
        self.assertFalse(list(self.folder.glob("checkpoints/*")))

    def test_reason_is_left_where_the_launcher_looks(self):
        error = self.folder / "error.json"
        self.fails(self.config(data={"kind": "text", "path": str(self.folder / "gone")}), 2,
                   env=dict(environment(), TORCHELASTIC_ERROR_FILE=str(error)))
        self.assertIn("gone", json.loads(error.read_text())["message"]["message"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
