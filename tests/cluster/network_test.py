"""One job on machines with addresses and interfaces of their own: training over the network, links
that are cut, addresses that lead nowhere."""

import contextlib
import sys

import namespaces
import nodes
from namespaces import Network
from nodes import WAITS, Node, expect_all, sandbox
from sandbox import lines_of, wait_until

WHO = 'echo "$RANK of $WORLD_SIZE meets at $MASTER_ADDR"\n'
JOB = """\
name: tiny
nodes: {workers: WORKERS}
train:
  model: {kind: gpt, layers: 1, width: 16, heads: 2, context: 16}
  data: {kind: text, path: sea.txt}
  optimizer: {kind: adamw, lr: 3e-3}
  batch: {global: 8, micro: 2}
  steps: 40
"""


@contextlib.contextmanager
def machines(s, count, decoy=None):
    s.env["XDG_CONFIG_HOME"] = str(s.folder / "config")
    network = Network(count, decoy)
    try:
        yield network
    finally:
        s.kill_everything()
        network.remove()
        nodes.remove_dead_sockets(s)


def start(s, network, index, *words, nnodes=None, endpoint=None):
    return Node(s, f"m{index}",
                ["launch", "--nnodes", nnodes or str(len(network.machines)), "--node-rank", str(index),
                 "--rdzv-endpoint", endpoint or f"{network.address(0)}:29400", "--node-name", f"m{index}",
                 *words], prefix=network.inside(index))


def start_all(s, network, *words, **options):
    return [start(s, network, i, *words, **options) for i in range(len(network.machines))]


def shown(all_nodes):
    return lambda: "\n".join(node.shown() for node in all_nodes)


def all_started(s, epoch, count):
    return lambda: all((s.folder / f"pid.{rank}.{epoch}").exists() for rank in range(count))


def parameters_of(text):
    found = [line for line in text.splitlines() if "parameters xxh3-128:" in line]
    assert len(found) == 1, text
    return found[0].split("xxh3-128:")[1].split()[0]


def machines_meet_at_the_network_of_the_endpoint(s):
    with machines(s, 3) as network:
        for which in (1, 2):
            all_nodes = start_all(s, network, s.shell(WHO), endpoint=f"{network.address(0, which)}:29400")
            expect_all(all_nodes, 0)
            assert lines_of(all_nodes[0].out, 2) == [f"2 of 3 meets at {network.address(0, which)}"], \
                shown(all_nodes)()


def addresses_that_lead_nowhere_are_not_chosen(s):
    with machines(s, 2, decoy="172.17.0.1") as network:
        # Rank 0's machine is not told which of its addresses the others know, and tells all.
        head = start(s, network, 0, s.shell(WHO), endpoint="0.0.0.0:29400")
        other = start(s, network, 1, s.shell(WHO))
        expect_all([head, other], 0)
        assert lines_of(head.out, 1) == [f"1 of 2 meets at {network.address(0)}"], head.shown()


def trainer_gives_the_same_result_on_two_machines_as_on_one(s):
    (s.folder / "sea.txt").write_text("The sea was calm, and the harbour lay still. " * 300)
    alone = s.run("launch", s.script("alone.yaml", JOB.replace("WORKERS", "4"), 0o644))
    assert alone.returncode == 0, alone.stderr
    path = s.script("job.yaml", JOB.replace("WORKERS", "2"), 0o644)
    with machines(s, 2) as network:
        all_nodes = start_all(s, network, path)
        expect_all(all_nodes, 0)
        assert parameters_of(all_nodes[0].out + all_nodes[0].err) == \
            parameters_of(alone.stdout + alone.stderr), shown(all_nodes)()


def cut_link_ends_the_lease_and_the_others_go_on(s):
    with machines(s, 3) as network:
        all_nodes = start_all(s, network, "--lease", "1s", s.shell(WAITS), nnodes="2:3")
        wait_until(all_started(s, 0, 3), shown(all_nodes))
        network.link(2, "down")
        wait_until(all_started(s, 1, 2), shown(all_nodes), 30)
        # Its workers are gone, too: their lease ended there as well.
        wait_until(lambda: not all_nodes[2].pids("sleep", "dash", "sh"), shown(all_nodes), 30)
        network.link(2, "up")
        (s.folder / "go").touch()
        expect_all(all_nodes[:2], 0)
        assert lines_of(all_nodes[0].out, 1)[-1] == "done 1 1 of 2", shown(all_nodes)()


def cut_link_that_is_mended_within_the_lease_harms_nothing(s):
    with machines(s, 2) as network:
        all_nodes = start_all(s, network, "--lease", "30s", s.shell(WAITS))
        wait_until(all_started(s, 0, 2), shown(all_nodes))
        network.link(1, "down")
        network.link(1, "up")
        (s.folder / "go").touch()
        expect_all(all_nodes, 0)
        assert lines_of(all_nodes[0].out, 1) == ["done 1 0 of 2"], shown(all_nodes)()


REASON = namespaces.why_not()
if REASON is not None:
    print(f"skipped, because {REASON}")
    sys.exit(77)
sandbox.main(__name__)
