"""Each check of scripts/check finds the fault it is for, and nothing in a tree without faults."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("TRAINCTL_SOURCE_DIR", pathlib.Path(__file__).parents[3]))
sys.path.insert(0, str(SOURCE / "scripts" / "lib"))
sys.dont_write_bytecode = True
import check  # noqa: E402
import include_rules  # noqa: E402


class FakeTree:
    """A tree that exists in memory, with what check.Tree offers."""

    def __init__(self, texts):
        self.texts = texts
        self.files = sorted(texts)

    def read(self, path):
        return self.texts.get(path)

    def sources(self, *endings):
        return [f for f in self.files if f.endswith(endings)]


def findings(name, texts):
    return list(check.CHECKS[name](FakeTree(texts), False))


class IncludeDirection(unittest.TestCase):
    def test_an_arrow_to_the_right_is_found(self):
        found = findings("includes", {"runtime/base/a.h": '#include "runtime/local/frames.h"\n'})
        self.assertEqual(len(found), 1)
        self.assertIn("runtime/base must not include", found[0])

    def test_generated_code_is_for_node_and_launcher_only(self):
        text = '#include "proto/job.pb.h"\n'
        self.assertEqual(len(findings("includes", {"runtime/supervisor/a.cc": text})), 1)
        self.assertEqual(findings("includes", {"launcher/a.cc": text}), [])

    def test_the_coordinator_is_a_folder_of_its_own(self):
        text = '#include "launcher/wire.h"\n'
        self.assertEqual(len(findings("includes", {"launcher/coordinator/a.cc": text})), 1)

    def test_arrows_to_the_left_and_tests_are_free(self):
        self.assertEqual(findings("includes", {
            "runtime/trainer/a.cc": '#include "kernels/linear.h"\n#include "runtime/worker/x.h"\n',
            "tests/unit/worker/a_test.cc": '#include "launcher/wire.h"\n'}), [])

    def test_every_rule_names_folders_of_the_rules(self):
        for own, others in include_rules.ALLOWED.items():
            for other in others - {"proto"}:
                self.assertIn(other, include_rules.ALLOWED, own)
                self.assertNotIn(own, include_rules.ALLOWED[other], f"{own} and {other} form a circle")


class PureParts(unittest.TestCase):
    def test_each_kind_of_impurity_is_found(self):
        for header in ("<thread>", "<ctime>", "<chrono>", "<fstream>", "<sys/socket.h>", "<random>",
                       "<unordered_map>", '"absl/container/flat_hash_map.h"', '"runtime/base/clock.h"'):
            with self.subTest(header):
                texts = {"launcher/coordinator/a.cc": f"#include {header}\n"}
                self.assertEqual(len(findings("includes", texts)), 1)

    def test_impurity_behind_our_own_headers_is_found_with_its_way(self):
        found = findings("includes", {
            "launcher/coordinator/a.cc": '#include "runtime/base/x.h"\n',
            "runtime/base/x.h": '#include "runtime/base/y.h"\n',
            "runtime/base/y.h": "#include <thread>\n"})
        self.assertEqual(len(found), 1)
        self.assertIn("launcher/coordinator/a.cc -> runtime/base/x.h -> runtime/base/y.h", found[0])

    def test_reading_the_environment_is_found(self):
        texts = {"runtime/supervisor/slot.cc": 'bool x = getenv("X");\n'}
        self.assertEqual(len(findings("includes", texts)), 1)

    def test_types_of_time_are_allowed(self):
        self.assertEqual(findings("includes", {
            "launcher/coordinator/a.h": '#include "runtime/base/time.h"\n',
            "runtime/base/time.h": "#include <chrono>\n"}), [])

    def test_other_parts_may_use_threads(self):
        self.assertEqual(findings("includes", {"runtime/worker/a.cc": "#include <thread>\n"}), [])


class Documents(unittest.TestCase):
    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_a_dead_link_and_a_dead_anchor_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder)
            subprocess.run(["git", "init", "--quiet", folder], check=True)
            (top / "a.md").write_text(
                "# First words: `x`\n[b](b.md) [c](c.md) [d](#first-words-x) [e](b.md#no) "
                "[f](https://example.org/x)\n```\n[g](g.md)\n```\n")
            (top / "b.md").write_text("# Yes\n")
            found = list(check.check_links(check.Tree(top), False))
        self.assertEqual(found, ["a.md: link to c.md, which does not exist",
                                 "a.md: link to b.md#no, which has no such heading"])

    def test_the_synopsis_is_the_block_of_verbs(self):
        text = "Does it.\n\ntrainctl launch   start\n                  a job\ntrainctl list     jobs\n\nExit:\n"
        self.assertEqual(check.synopsis_of(text),
                         "trainctl launch   start\n                  a job\ntrainctl list     jobs")


class Names(unittest.TestCase):
    def test_an_unregistered_test_is_found(self):
        lists = {"tests/unit/base/CMakeLists.txt": "trainctl_test(a unit SOURCES a_test.cc)\n"}
        self.assertEqual(findings("tests", {**lists, "tests/unit/base/a_test.cc": ""}), [])
        self.assertEqual(len(findings("tests", {**lists, "tests/unit/base/aa_test.cc": ""})), 1)

    def test_words_that_mean_nothing_are_found_in_names_of_files_and_folders(self):
        self.assertEqual(len(findings("words", {"runtime/util/x.h": "", "launcher/job_manager.cc": ""})), 2)
        self.assertEqual(findings("words", {"launcher/information.cc": ""}), [])


class Formatting(unittest.TestCase):
    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_a_file_that_is_not_formatted_is_found_and_mended(self):
        try:
            check.tool("clang-format")
        except check.Skipped as reason:
            self.skipTest(str(reason))
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder)
            subprocess.run(["git", "init", "--quiet", folder], check=True)
            (top / ".clang-format").write_text((SOURCE / ".clang-format").read_text())
            (top / "a.cc").write_text("int   f( ) {return 1;}\n")
            self.assertEqual(len(list(check.check_format(check.Tree(top), False))), 1)
            self.assertEqual(list(check.check_format(check.Tree(top), True)), [])
            self.assertEqual((top / "a.cc").read_text(), "int f() { return 1; }\n")


if __name__ == "__main__":
    unittest.main()
