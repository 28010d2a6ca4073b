"""cmake --install to any prefix gives a tree that works on its own."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["TRAINCTL_BIN_DIR"]).parent


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.top = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.top)
        cls.prefix = cls.top / "somewhere" / "else"
        subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.prefix], check=True,
                       stdout=subprocess.DEVNULL, timeout=60)

    def run_there(self, *words):
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.top), "XDG_STATE_HOME": str(self.top / "state")}
        return subprocess.run([self.prefix / "bin" / "trainctl", *words], env=env, cwd=self.top,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def test_the_tree_is_complete(self):
        for name in ("bin/trainctl", "bin/traind", "libexec/trainctl/train-shim",
                     "libexec/trainctl/train-coordinator", "libexec/trainctl/train-worker",
                     "share/trainctl/examples/fashion_mnist.yaml", "share/trainctl/examples/ddp.py",
                     "share/trainctl/examples/text/harbour.txt"):
            self.assertTrue((self.prefix / name).is_file(), name)

    def test_the_units_start_what_was_installed(self):
        for name in ("system/traind.service", "user/traind.service"):
            unit = (self.prefix / "lib/systemd" / name).read_text()
            self.assertIn(f"ExecStart={self.prefix}/bin/traind $", unit)
            page = unit.split("Documentation=file://")[1].splitlines()[0]
            self.assertTrue(pathlib.Path(page).is_file(), page)
            self.assertNotRegex(unit, "@[A-Z_]+@")

    def test_the_version_is_printed(self):
        done = self.run_there("version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\d+\.\d+\.\d+")

    def test_a_worker_runs_and_the_programs_are_found(self):
        done = self.run_there("launch", "--nproc-per-node", "1",
                              str(self.prefix / "share/trainctl/examples/hello.sh"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank 0 of 1, epoch 0", done.stdout + done.stderr)

    def test_the_built_in_trainer_is_found(self):
        job = self.top / "job.yaml"
        text = self.prefix / "share/trainctl/examples/text/harbour.txt"
        job.write_text("train:\n"
                       "  model: {kind: gpt, layers: 1, width: 16, heads: 1, context: 16}\n"
                       f"  data: {{kind: text, path: {text}}}\n"
                       "  optimizer: {kind: sgd, lr: 0.1}\n  batch: {global: 4}\n  steps: 3\n")
        done = self.run_there("launch", str(job))
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
