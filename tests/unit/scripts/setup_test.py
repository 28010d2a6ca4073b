"""scripts/setup with the package tools replaced: what it asks for, what it installs, what it says."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("TRAINCTL_SOURCE_DIR", pathlib.Path(__file__).parents[3]))


class Setup(unittest.TestCase):
    def setUp(self):
        self.top = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.top)
        (self.top / "scripts").mkdir()
        (self.top / "bin").mkdir()
        shutil.copy(SOURCE / "scripts" / "setup", self.top / "scripts" / "setup")
        (self.top / "scripts" / "packages.txt").write_text(
            "# a comment\n[build]\ng++\ncmake\n\n[run]\ndata\n[tests]\n# why\npeer\n")

    def program(self, name, text):
        file = self.top / "bin" / name
        file.write_text("#!/bin/sh\n" + text)
        file.chmod(0o755)

    def setup(self, *flags, installed=(), user=0, apt_status=0, sudo=False):
        lines = "".join(f"echo 'installed {name}'\n" for name in installed)
        self.program("dpkg-query", lines + "echo 'config-files peer'\n")
        self.program("id", f"echo {user}\n")
        self.program("apt-get", f'echo "apt-get $*" >> "{self.top}/calls"\nexit {apt_status}\n')
        if sudo:
            self.program("sudo", f'echo sudo >> "{self.top}/calls"\nexec "$@"\n')
        # The tools that setup itself needs, and no sudo but ours.
        for name in ("bash", "sh", "awk", "sed", "grep", "tr", "wc", "env", "mkdir", "dirname", "tail", "cat"):
            link = self.top / "bin" / name
            if not link.exists():
                link.symlink_to(shutil.which(name))
        return subprocess.run(["bash", self.top / "scripts" / "setup", *flags], capture_output=True,
                              text=True, env={"PATH": str(self.top / "bin")}, timeout=30)

    def calls(self):
        file = self.top / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def test_installs_nothing_when_nothing_is_missing(self):
        done = self.setup(installed=["g++", "cmake", "data"])
        self.assertEqual((done.returncode, self.calls()), (0, []), done.stderr)

    def test_installs_exactly_what_is_missing_of_the_sections_asked_for(self):
        done = self.setup("--tests", installed=["g++", "data"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("installing 2 packages and what they need: cmake peer", done.stdout)
        self.assertTrue(self.calls()[0].endswith("update"))
        self.assertTrue(self.calls()[1].endswith("install --no-install-recommends cmake peer"))

    def test_a_package_that_was_removed_counts_as_missing(self):
        self.setup("--tests", installed=["g++", "cmake", "data"])
        self.assertTrue(self.calls()[1].endswith(" peer"))

    def test_a_user_without_sudo_is_told_the_command(self):
        done = self.setup(user=1000)
        self.assertEqual(done.returncode, 1)
        self.assertIn("As root run: apt-get install --yes g++ cmake data", done.stderr)
        self.assertEqual(self.calls(), [])

    def test_a_user_with_sudo_uses_it(self):
        done = self.setup(user=1000, sudo=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.calls()[0], "sudo")

    def test_a_failed_installation_fails_the_set_up(self):
        done = self.setup(apt_status=100)
        self.assertEqual(done.returncode, 1)
        self.assertIn("build/setup.log", done.stderr)

    def test_an_unknown_flag_is_a_usage_error(self):
        done = self.setup("--test")
        self.assertEqual(done.returncode, 2)
        self.assertIn("known are --tests, --service, --check and --examples", done.stderr)


if __name__ == "__main__":
    unittest.main()
