"""The simulator's exit status tells what went wrong, and its last line is the command that shows it again."""
import os
import shlex
import subprocess
import unittest

SIM = os.path.join(os.environ["TRAINCTL_TESTS_DIR"], "trainctl-sim")
SMALL = ["--nodes", "4", "--slots", "2", "--minutes", "2"]


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)


class ExitCodes(unittest.TestCase):
    def check(self, status, *flags):
        first = run([SIM, *SMALL, *flags])
        self.assertEqual(first.returncode, status, first.stdout + first.stderr)
        command = first.stderr.rstrip().splitlines()[-1]
        again = run(shlex.split(command, comments=True))
        self.assertEqual(again.returncode, status, command + "\n" + again.stdout + again.stderr)
        self.assertEqual(again.stderr, first.stderr)

    def test_good(self):
        self.assertEqual(run([SIM, *SMALL, "--twice"]).returncode, 0)

    def test_crash(self):
        self.check(10, "--plant", "crash")

    def test_unsafe(self):
        self.check(11, "--plant", "same-ranks")

    def test_stuck(self):
        self.check(12, "--seeds", "20", "--plant", "never-dial-again")

    def test_not_the_same_twice(self):
        self.check(13, "--plant", "unseeded", "--twice")


if __name__ == "__main__":
    unittest.main()
