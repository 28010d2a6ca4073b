"""CUDA is used where there is a compiler for it, and never required."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("TRAINCTL_SOURCE_DIR", pathlib.Path(__file__).parents[3]))


def configure(*flags):
    """On a machine whose nvcc, if it has one, does not work."""
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(["cmake", "-S", SOURCE, "-B", folder, "-G", "Ninja", *flags], capture_output=True, text=True,
                              env={**os.environ, "CUDACXX": "/bin/false"}, check=False)


class Configure(unittest.TestCase):
    def test_without_cuda_it_builds_for_cpus(self):
        done = configure()
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_cuda_that_was_asked_for_is_missed(self):
        done = configure("-DTRAINCTL_CUDA=ON")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no nvcc that works", " ".join(done.stderr.split()))


unittest.main()
