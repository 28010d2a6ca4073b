"""bench allreduce on CPUs: a table whose sums are right, and the same as metrics."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sandbox  # noqa: E402
from sandbox import expect, lines_of  # noqa: E402


def a_table_of_two_workers_has_times_and_no_wrong_sum(s):
    done = s.run("bench", "allreduce", "--backend", "gloo", "--nproc-per-node", "2", "--largest", "64KiB")
    expect(done, 0)
    head, _, *rows = lines_of(done.stdout, 0)
    assert "2 ranks" in head and "CPU" in head, head
    rows = [row.split() for row in rows]
    assert [int(row[0]) for row in rows] == [8 * 4**i for i in range(7)], rows
    for size, count, microseconds, algbw, busbw, wrong in rows:
        assert int(count) * 4 == int(size) and float(microseconds) > 0 and wrong == "0", rows
        assert float(busbw) == float(algbw), "of two ranks they are the same"


def json_gives_each_figure_as_a_metric(s):
    done = s.run("bench", "allreduce", "--backend", "gloo", "--nproc-per-node", "1", "--largest", "8", "--json")
    expect(done, 0)
    seen = {x["name"]: x["value"] for x in map(json.loads, done.stdout.splitlines()) if x["type"] == "metric"}
    assert seen["microseconds_8"] > 0 and seen["busbw_8"] == 0, seen


def what_cannot_be_measured_is_a_usage_error(s):
    expect(s.run("bench", "gemm"), 2, "expected allreduce")
    expect(s.run("bench", "allreduce", "--backend", "mpi"), 2, "expected auto, nccl or gloo")
    expect(s.run("bench", "allreduce", "--largest", "4"), 2, "at least 8 bytes")


sandbox.main(__name__)
