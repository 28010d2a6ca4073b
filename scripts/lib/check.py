#!/usr/bin/python3
"""The checks of scripts/check. Each yields one line per finding; none found is success."""

import argparse
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import include_rules  # noqa: E402

CLANG_MAJOR = "14"  # another version of clang-format formats differently
FORBIDDEN_WORDS = {"host", "agent", "round", "generation", "manager", "helper", "util", "utils",
                   "handler", "info", "common"}


class Skipped(Exception):
    """A check that cannot run here; its text says why."""


class Tree:
    """The files of a work tree that git tracks or would track."""

    def __init__(self, top, base=None, everything=False):
        self.top = pathlib.Path(top)
        self.files = sorted(f for f in self._git("ls-files", "--cached", "--others", "--exclude-standard")
                            if (self.top / f).is_file())
        self._base = base
        self._everything = everything

    def _git(self, *words):
        done = subprocess.run(["git", *words], cwd=self.top, capture_output=True, text=True)
        return done.stdout.splitlines() if done.returncode == 0 else []

    def read(self, path):
        file = self.top / path
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None

    def sources(self, *endings):
        return [f for f in self.files if f.endswith(endings)]

    def changed(self):
        """Files that differ from the base: REF, else where this branch left its upstream."""
        if self._everything:
            return set(self.files)
        base = self._base or next(iter(self._git("merge-base", "HEAD", "@{upstream}")), "HEAD")
        untracked = self._git("ls-files", "--others", "--exclude-standard")
        return set(self._git("diff", "--name-only", base)) | set(untracked)


def tool(name):
    """The command of a clang tool of the version whose output the tree is kept in."""
    for command in (f"{name}-{CLANG_MAJOR}", name):
        try:
            text = subprocess.run([command, "--version"], capture_output=True, text=True).stdout
        except FileNotFoundError:
            continue
        if re.search(rf"version {CLANG_MAJOR}\.", text):
            return command
    raise Skipped(f"no {name} of version {CLANG_MAJOR} is installed")


def check_format(tree, fix):
    command = [tool("clang-format"), "-i" if fix else "--dry-run"]
    files = tree.sources(".cc", ".h", ".cu", ".cuh")
    if files:
        done = subprocess.run(command + files, cwd=tree.top, capture_output=True, text=True)
        for file in sorted(set(re.findall(r"^(\S+?):\d+:\d+: ", done.stderr, re.MULTILINE))):
            yield f"{file}: not as clang-format writes it; scripts/check --fix format mends it"


def configure_for_tidy(tree):
    """A build folder of single sources without precompiled headers, which is all that clang-tidy can read, with the
    generated headers in it."""
    own = tree.top / "build" / "tidy"
    for command in (["cmake", "-S", tree.top, "-B", own, "-G", "Ninja", "-DTRAINCTL_PRECOMPILE=OFF", "-DTRAINCTL_UNITY=OFF"],
                    ["cmake", "--build", own, "--target", "trainctl_proto"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Skipped(f"{' '.join(map(str, command))} failed: {done.stderr[-500:]}")
    return own


def check_tidy(tree, fix):
    own = configure_for_tidy(tree)
    known = (own / "compile_commands.json").read_text()
    files = [f for f in sorted(tree.changed()) if f.endswith(".cc") and str(tree.top / f) in known]
    # Options that only the compiler of the database knows are no findings.
    command = [tool("clang-tidy"), "--quiet", "-p", str(own), "--extra-arg=-Wno-unknown-warning-option"]
    for file in files:
        done = subprocess.run(command + (["--fix"] if fix else []) + [file],
                              cwd=tree.top, capture_output=True, text=True)
        for line in done.stdout.splitlines():
            if re.match(r"\S+:\d+:\d+: (warning|error):", line):
                yield line.replace(str(tree.top) + "/", "")


def check_includes(tree, fix):
    for path in tree.sources(".cc", ".h", ".cu", ".cuh"):
        yield from include_rules.wrong_arrows(path, tree.read(path))
        if include_rules.is_pure(path):
            yield from include_rules.impurities(path, tree.read)


def check_tests(tree, fix):
    for path in tree.files:
        if re.fullmatch(r"tests/.*_test\.(cc|py)", path):
            folders = [p for p in pathlib.PurePath(path).parents if str(p).startswith("tests")]
            lists = " ".join(tree.read(str(folder / "CMakeLists.txt")) or "" for folder in folders)
            if pathlib.PurePath(path).name not in re.findall(r"[\w.]+", lists):
                yield f"{path}: not registered in the CMakeLists.txt of its folder"


def check_words(tree, fix):
    for path in tree.files:
        for word in re.split(r"[/_.\-]", path.lower()):
            if word in FORBIDDEN_WORDS:
                yield f"{path}: '{word}' is not one of the project's words (runtime/README.md)"


def _anchors(text):
    """The anchors that a rendered page offers for its headings."""
    for heading in re.findall(r"^#+\s+(.*?)\s*$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
        yield re.sub(r"\s", "-", plain)


def check_links(tree, fix):
    for path in tree.sources(".md"):
        prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", tree.read(path), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            found = (tree.top / path).parent / file if file else tree.top / path
            if not found.exists():
                yield f"{path}: link to {target}, which does not exist"
            elif anchor and found.suffix == ".md" and anchor not in _anchors(found.read_text()):
                yield f"{path}: link to {target}, which has no such heading"


def synopsis_of(help_text):
    """The verbs' lines: from the first that starts with the program's name to the next empty one."""
    match = re.search(r"^trainctl .*?(?=^\s*$)", help_text, re.MULTILINE | re.DOTALL)
    return match.group(0).rstrip() if match else ""


def check_synopsis(tree, fix):
    program = next((tree.top / "build" / p / "bin/trainctl" for p in ("release", "dev", "clang")
                    if (tree.top / "build" / p / "bin/trainctl").exists()), None)
    if program is None:
        raise Skipped("trainctl is not built: scripts/build first")
    if tree.read("README.md") is None:
        raise Skipped("there is no README.md")
    shown = subprocess.run([program, "--help"], capture_output=True, text=True).stdout
    if not synopsis_of(shown):
        yield f"{program} --help shows no line that starts with 'trainctl '"
    elif synopsis_of(shown) not in tree.read("README.md"):
        yield "README.md: its synopsis is not what trainctl --help prints:\n" + synopsis_of(shown)


CHECKS = {"format": check_format, "includes": check_includes, "tests": check_tests,
          "words": check_words, "links": check_links, "synopsis": check_synopsis, "tidy": check_tidy}


def run(tree, names, fix):
    findings = 0
    for name in names:
        try:
            found = list(CHECKS[name](tree, fix))
        except Skipped as reason:
            print(f"{name}: skipped, because {reason}")
            continue
        print(f"{name}: {'ok' if not found else f'{len(found)} findings'}")
        for line in found:
            print(f"  {line}")
        findings += len(found)
    return findings


def main():
    parser = argparse.ArgumentParser(prog="scripts/check", description=__doc__)
    parser.add_argument("--fix", action="store_true", help="format files, apply clang-tidy's fixes")
    parser.add_argument("--base", metavar="REF", help="tidy looks at files changed since REF")
    parser.add_argument("--all", action="store_true", help="tidy looks at every file")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {' '.join(CHECKS)}")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in CHECKS]
    if unknown:
        parser.error(f"no check is called {unknown[0]}; there are {' '.join(CHECKS)}")
    tree = Tree(pathlib.Path(__file__).resolve().parents[2], args.base, args.all)
    return 1 if run(tree, args.names or list(CHECKS), args.fix) else 0


if __name__ == "__main__":
    sys.exit(main())
