"""One job on several nodes that share a machine: the same command on every node."""

import json
import os
import signal

import nodes
from nodes import WAITS, WHO, Loopback, Node, expect_all, sandbox
from sandbox import expect, lines_of, wait_until


def two_nodes_run_one_job(s):
    cluster = Loopback(s, 2)
    head, other = cluster.start_all("--nproc-per-node", "2", s.shell(WHO))
    expect_all([head, other], 0)
    for rank in range(4):
        assert lines_of(head.out, rank) == [f"{rank} {rank % 2} 4 {rank // 2} 2 127.0.0.2"], cluster.shown()
    assert other.out == "", cluster.shown()
    for text in ("is in job", "coordinated by n0 at 127.0.0.2", "succeeded"):
        assert text in other.err, cluster.shown()
    parts = s.folder / "state/trainctl/parts"
    assert not parts.exists() or not list(parts.iterdir()), "a part is left"


def three_nodes_may_come_in_any_order_and_without_names(s):
    s.env["XDG_CONFIG_HOME"] = str(s.folder / "config")
    port = nodes.free_port()
    words = ["launch", "--nnodes", "3", "--rdzv-endpoint", f"127.0.0.1:{port}", s.shell(WHO)]
    all_nodes = [Node(s, f"t{rank}", [*words[:1], "--node-rank", str(rank), *words[1:]])
                 for rank in (2, 1, 0)]
    expect_all(all_nodes, 0)
    seen = sorted(line.split("] ")[1] for line in all_nodes[2].out.splitlines())
    assert seen == [f"{r} 0 3 {r} 3 127.0.0.1" for r in range(3)], all_nodes[2].shown()


def without_node_ranks_the_first_at_the_endpoint_coordinates(s):
    s.env["XDG_CONFIG_HOME"] = str(s.folder / "config")
    env = {"PET_NNODES": "2", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": "run7",
           "PET_RDZV_ENDPOINT": f"localhost:{nodes.free_port()}"}
    pair = [Node(s, name, ["launch", s.shell(WHO)], env) for name in ("a", "b")]
    expect_all(pair, 0)
    assert sorted(len(node.out.splitlines()) for node in pair) == [0, 2], [n.shown() for n in pair]


def tasks_of_slurm_need_no_flags(s):
    s.env["XDG_CONFIG_HOME"] = str(s.folder / "config")
    pair = []
    for index in (0, 1):
        env = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "127.0.0.[2-3]",
               "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
               "SLURM_NODEID": str(index), "SLURM_PROCID": str(index), "SLURM_LOCALID": "0",
               "SLURMD_NODENAME": f"127.0.0.{index + 2}"}
        pair.append(Node(s, f"s{index}", ["launch", s.shell(WHO)], env))
    expect_all(pair, 0)
    assert lines_of(pair[0].out, 1) == ["1 0 2 1 2 127.0.0.2"], pair[0].shown()
    assert "[127.0.0.3:1]" in pair[0].out, pair[0].shown()


def start_tasks(box, script, nodes=2, each=2, env=None):
    """As srun does: a task has an environment that says which one it is, and may have a processor of its own."""
    box.env["XDG_CONFIG_HOME"] = str(box.folder / "config")
    tasks = []
    for task in range(nodes * each):
        node, local = divmod(task, each)
        own = {"SLURM_JOB_ID": box.mark[:8], "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": f"127.0.0.[2-{nodes + 1}]",
               "SLURM_STEP_NUM_NODES": str(nodes), "SLURM_STEP_TASKS_PER_NODE": f"{each}(x{nodes})",
               "SLURM_NODEID": str(node), "SLURM_PROCID": str(task), "SLURM_LOCALID": str(local),
               "SLURMD_NODENAME": f"127.0.0.{node + 2}"}
        tasks.append(Node(box, f"s{task}", ["launch", script], {**own, **(env(node, local) if env else {})},
                          prefix=["taskset", "-c", str(local % os.cpu_count())]))
    return tasks


def several_tasks_on_a_node_lend_it_what_they_have(s):
    script = s.shell(WHO + 'echo "$CUDA_VISIBLE_DEVICES $(taskset -pc $$ | sed "s/.*: //")"\n')
    tasks = start_tasks(s, script, env=lambda node, local: {"CUDA_VISIBLE_DEVICES": f"{4 * node + local}"})
    expect_all(tasks, 0)
    cpus = "0,1" if os.cpu_count() > 1 else "0"
    assert lines_of(tasks[0].out, 3) == ["3 1 4 1 2 127.0.0.2", f"4,5 {cpus}"], tasks[0].shown()
    assert not list(sandbox.socket_folder().glob(f"*{s.mark[:8]}*")), "a socket is left"


def each_task_ends_as_its_worker_does(s):
    all_there = "touch here.$RANK\nwhile [ $(ls here.* | wc -l) -lt 4 ]; do sleep 0.02; done\n"
    # Rank 1 ends well, rank 3 fails, the others are stopped for it.
    end = "[ $RANK = 1 ] && touch done && exit 0\n[ $RANK = 3 ] && while [ ! -e done ]; do sleep 0.02; done && exit 7\n"
    tasks = start_tasks(s, s.shell(all_there + end + "exec sleep 1000\n"))
    statuses = [task.wait() for task in tasks]
    assert statuses == [1, 0, 1, 7], "\n".join(task.shown() for task in tasks)


def tasks_end_when_the_first_is_killed(s):
    first, other = start_tasks(s, s.shell(WAITS), nodes=1)
    wait_until(lambda: all((s.folder / f"pid.{r}.0").exists() for r in range(2)), first.shown)
    first.kill("trainctl")
    assert other.wait() == 3, other.shown()
    assert "task 0 on this node ended without a word" in other.err, other.shown()
    wait_until(lambda: not first.pids() and not other.pids(), first.shown)


def tasks_that_are_confined_to_their_own_gpu_are_refused(s):
    tasks = start_tasks(s, s.shell(WHO), nodes=1,
                        env=lambda node, local: {"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS_ON_NODE": "2"})
    assert tasks[0].wait() == 5 and "--gpus-per-node" in tasks[0].err, tasks[0].shown()
    assert tasks[1].wait() == 5, tasks[1].shown()


def workers_have_the_environment_of_their_own_node(s):
    cluster = Loopback(s, 2)
    script = s.shell('echo "$RANK $WHERE $EVERYWHERE ${ONLY_HEAD:-unset}"\n')
    s.env["EVERYWHERE"] = "same"
    pair = [cluster.start(0, script, env={"WHERE": "zero", "ONLY_HEAD": "1"}),
            cluster.start(1, script, env={"WHERE": "one", "RANK": "77"})]
    expect_all(pair, 0)
    assert lines_of(pair[0].out, 0) == ["0 zero same 1"], cluster.shown()
    assert lines_of(pair[0].out, 1) == ["1 one same unset"], cluster.shown()


def failure_on_one_node_ends_all_with_its_reason(s):
    cluster = Loopback(s, 2)
    head, other = cluster.start_all(s.shell("[ $RANK = 1 ] && exit 7\nexec sleep 1000\n"))
    expect_all([head, other], 1)
    for node in (head, other):
        assert "exit code 7" in node.err or "code 7" in node.err, cluster.shown()
    failure = s.report()["first_failure"]
    assert failure["node"] == "n1" and failure["rank"] == 1 and failure["code"] == 7, failure


def worker_killed_on_one_node_restarts_all(s):
    cluster = Loopback(s, 3)
    all_nodes = cluster.start_all("--max-restarts", "1", s.shell(WAITS))
    pid = s.folder / "pid.1.0"
    wait_until(lambda: pid.exists() and pid.read_text().strip(), cluster.shown)
    wait_until(lambda: all((s.folder / f"pid.{r}.0").exists() for r in range(3)), cluster.shown)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    wait_until(lambda: all((s.folder / f"pid.{r}.1").exists() for r in range(3)), cluster.shown)
    (s.folder / "go").touch()
    expect_all(all_nodes, 0)
    for rank in range(3):
        assert lines_of(all_nodes[0].out, rank) == [f"done {rank} 1 of 3"], cluster.shown()


def elastic_job_goes_on_without_a_node_that_dies(s):
    cluster = Loopback(s, 3, nnodes="2:3")
    all_nodes = cluster.start_all("--lease", "1s", "--max-restarts", "0", s.shell(WAITS))
    wait_until(lambda: all((s.folder / f"pid.{r}.0").exists() for r in range(3)), cluster.shown)
    lost = all_nodes[2]
    expect(s.run("chaos", s.job().name, "--kill-node", "n2"), 0)
    wait_until(lambda: all((s.folder / f"pid.{r}.1").exists() for r in range(2)), cluster.shown, 30)
    (s.folder / "go").touch()
    expect_all(all_nodes[:2], 0)
    assert lines_of(all_nodes[0].out, 1)[-1] == "done 1 1 of 2", cluster.shown()
    assert not lost.pids(), cluster.shown()
    report = s.report()
    failure = report["first_failure"]
    assert failure["class"] == "node lost" and failure["node"] == "n2" and failure["rank"] is None, failure
    assert report["goodput"]["lost_by_cause"]["node lost"] > 0, report["goodput"]
    nodes.remove_dead_sockets(s)


def fixed_job_takes_its_node_back(s):
    cluster = Loopback(s, 2)
    head, other = cluster.start_all("--lease", "1s", s.shell(WAITS))
    wait_until(lambda: all((s.folder / f"pid.{r}.0").exists() for r in range(2)), cluster.shown)
    other.kill()
    again = cluster.start(1, "--lease", "1s", s.shell(WAITS))
    wait_until(lambda: all((s.folder / f"pid.{r}.1").exists() for r in range(2)), cluster.shown, 30)
    (s.folder / "go").touch()
    expect_all([head, again], 0)


def node_that_never_comes_ends_the_wait_with_status_6(s):
    cluster = Loopback(s, 2)
    head = cluster.start(0, "--join-timeout", "2s", s.shell(WHO))
    assert head.wait() == 6, head.shown()
    assert "1 of 2 nodes" in head.err, head.shown()
    alone = cluster.start(1, "--join-timeout", "1s", s.shell(WHO), name="late")
    assert alone.wait() == 6, alone.shown()
    assert f"127.0.0.2:{cluster.port}" in alone.err and "refused" in alone.err, alone.shown()


def two_nodes_whose_workers_wait(box):
    cluster = Loopback(box, 2)
    nodes = cluster.start_all(box.shell(WAITS))
    wait_until(lambda: all((box.folder / f"pid.{r}.0").exists() for r in range(2)), cluster.shown)
    return cluster, *nodes


def workers_go_on_to_a_good_end(s, cluster, head, other):
    (s.folder / "go").touch()
    expect_all([head, other], 0)
    assert lines_of(head.out, 1) == ["done 1 0 of 2"], cluster.shown()


def daemon_killed_on_a_node_harms_nothing(s):
    cluster, head, other = two_nodes_whose_workers_wait(s)
    assert other.kill("traind"), cluster.shown()
    other.says("started it again")
    other.says("is back in job")
    workers_go_on_to_a_good_end(s, cluster, head, other)


def coordinator_killed_is_found_again_by_every_node(s):
    cluster, head, other = two_nodes_whose_workers_wait(s)
    assert head.kill("train-coordinator"), cluster.shown()
    other.says("is back in job")
    workers_go_on_to_a_good_end(s, cluster, head, other)


def coordinator_killed_while_nodes_are_waited_for_is_found_by_those_who_come(s):
    cluster = Loopback(s, 2)
    head = cluster.start(0, s.shell(WHO))
    head.says("1 of 2 nodes")
    assert head.kill("train-coordinator"), cluster.shown()
    other = cluster.start(1, s.shell(WHO))
    expect_all([head, other], 0)


def interrupt_on_any_node_stops_a_job_that_needs_all(s):
    cluster = Loopback(s, 2)
    head, other = cluster.start_all(s.shell("trap 'exit 0' TERM\n" + WAITS))
    wait_until(lambda: all((s.folder / f"pid.{r}.0").exists() for r in range(2)), cluster.shown)
    other.process.send_signal(signal.SIGINT)
    assert other.wait() == 128 + signal.SIGINT, cluster.shown()
    assert head.wait() == 1, cluster.shown()
    assert "Ctrl-C on node n1" in head.err, cluster.shown()


def interrupt_on_one_node_of_an_elastic_job_takes_it_out(s):
    cluster = Loopback(s, 2, nnodes="1:2")
    head, other = cluster.start_all("--lease", "2s", s.shell(WAITS))
    wait_until(lambda: all((s.folder / f"pid.{r}.0").exists() for r in range(2)), cluster.shown)
    other.process.send_signal(signal.SIGTERM)
    assert other.wait() == 128 + signal.SIGTERM, cluster.shown()
    wait_until(lambda: (s.folder / "pid.0.1").exists(), cluster.shown, 30)
    (s.folder / "go").touch()
    expect_all([head], 0)
    assert lines_of(head.out, 0)[-1] == "done 0 1 of 1", cluster.shown()
    assert "node n1 cannot run workers any more: it leaves the job (asked to leave)" in head.err, cluster.shown()


def killed_front_end_of_a_node_in_a_step_ends_that_nodes_workers(s):
    cluster = Loopback(s, 2)
    head, other = cluster.start_all("--orphan-timeout", "0", s.shell(WAITS))
    wait_until(lambda: all((s.folder / f"pid.{r}.0").exists() for r in range(2)), cluster.shown)
    other.kill("trainctl")
    wait_until(lambda: not other.pids(), cluster.shown)
    head.process.send_signal(signal.SIGTERM)
    head.wait()


def two_jobs_on_one_endpoint_never_merge(s):
    cluster = Loopback(s, 2)
    head = cluster.start(0, "--rdzv-id", "mine", s.shell(WAITS))
    head.says("nodes")
    stranger = cluster.start(1, "--rdzv-id", "other", s.shell(WHO, "who.sh"), name="stranger")
    assert stranger.wait() == 5, cluster.shown()
    for text in ("it is --rdzv-id mine, not --rdzv-id other", "an endpoint of its own"):
        assert text in stranger.err, cluster.shown()
    differs = cluster.start(1, s.shell(WHO, "who.sh"), name="differs")
    assert differs.wait() == 5, cluster.shown()
    second = cluster.start(0, "--rdzv-id", "other", s.shell(WHO, "who.sh"), name="second")
    assert second.wait() == 1, cluster.shown()
    assert "another process listens" in second.err, cluster.shown()
    head.process.send_signal(signal.SIGINT)
    head.wait()


def rank_taken_twice_is_refused_naming_both(s):
    cluster = Loopback(s, 3)
    head = cluster.start(0, s.shell(WAITS))
    first = cluster.start(1, s.shell(WAITS), name="first")
    first.says("is in job")
    second = cluster.start(1, s.shell(WAITS), name="second")
    assert second.wait() == 1, cluster.shown()
    assert "first" in second.err and "second" in second.err and "rank 1" in second.err, cluster.shown()
    head.process.send_signal(signal.SIGINT)
    head.wait()
    first.wait(20)


def waiting_says_every_five_seconds_who_is_missing(s):
    cluster = Loopback(s, 2)
    head = cluster.start(0, s.shell(WHO))
    head.says("1 of 2 nodes", 20)
    other = cluster.start(1, s.shell(WHO))
    expect_all([head, other], 0)


def nodes_beyond_the_most_are_refused(s):
    cluster = Loopback(s, 2)
    head = cluster.start(0, s.shell(WAITS))
    first = cluster.start(1, s.shell(WAITS))
    first.says("is in job")
    words = ["launch", "--nnodes", "2", "--rdzv-endpoint", f"127.0.0.2:{cluster.port}", "--node-name", "third",
             "--rdzv-conf", "is_host=0", s.shell(WAITS)]
    third = Node(s, "third", words)
    assert third.wait() == 1, third.shown() + cluster.shown()
    assert "the job has all the nodes that it takes, 2" in third.err, third.shown()
    (s.folder / "go").touch()
    expect_all([head, first], 0)


def drained_node_loses_its_place_and_comes_back(s):
    cluster = Loopback(s, 3, nnodes="2:3")
    all_nodes = cluster.start_all("--max-restarts", "1", s.shell(WAITS))
    wait_until(lambda: all((s.folder / f"pid.{r}.0").exists() for r in range(3)), cluster.shown)
    wait_until(lambda: "running" in s.run("list").stdout, cluster.shown)

    def standings():
        shown = s.run("nodes", "--json")
        expect(shown, 0)
        return {line["node"]: line["standing"] for line in map(json.loads, shown.stdout.splitlines())}

    assert standings() == {"n0": "member", "n1": "member", "n2": "member"}, cluster.shown()
    expect(s.run("nodes", "drain", "n9"), 3, "no job that runs here has a node n9")
    expect(s.run("nodes", "drain", "n9", "--job", s.job().name), 3, "its nodes: n0, n1, n2")
    expect(s.run("nodes", "drain", "n2"), 0, "to drain node n2")
    all_nodes[0].says("node n2 is drained by trainctl nodes")
    assert "drained" in s.run("nodes").stdout
    os.kill(int((s.folder / "pid.0.0").read_text()), signal.SIGKILL)
    wait_until(lambda: all((s.folder / f"pid.{r}.1").exists() for r in range(2)), cluster.shown)
    wait_until(lambda: standings()["n2"] == "drained", cluster.shown)
    expect(s.run("nodes", "undrain", "n2"), 0)
    wait_until(lambda: standings()["n2"] == "spare", cluster.shown)
    (s.folder / "go").touch()
    expect_all(all_nodes, 0)
    assert lines_of(all_nodes[0].out, 1)[-1] == "done 1 1 of 2", cluster.shown()
    expect(s.run("nodes"), 0, "no job runs here")


def variables_of_other_frameworks_are_those_of_a_2x2_job(s):
    seen = 'echo "$MASTER_PORT $JAX_COORDINATOR_ADDRESS $JAX_PROCESS_ID $JAX_NUM_PROCESSES $TF_CONFIG"\n'
    cluster = Loopback(s, 2, nnodes="1:2")
    pair = cluster.start_all("--nproc-per-node", "2", "--lease", "1s", s.shell(seen + WAITS))

    def golden(rank, addresses):
        """The line of one rank, whose port is fresh in every epoch."""
        line = lines_of(pair[0].out, rank)[-1]
        port = int(line.split()[0])
        workers = ", ".join(f'"{address}:{port + i}"' for i, address in enumerate(addresses))
        return line, (f'{port} {addresses[0]}:{port} {rank} {len(addresses)} {{"cluster": {{"worker": [{workers}]}}, '
                      f'"task": {{"type": "worker", "index": {rank}}}}}')

    wait_until(lambda: all(lines_of(pair[0].out, rank) for rank in range(4)), cluster.shown)
    for rank in range(4):
        line, wanted = golden(rank, ["127.0.0.2"] * 2 + ["127.0.0.3"] * 2)
        assert line == wanted, f"{line}\n{wanted}"
    pair[1].kill()
    wait_until(lambda: all(len(lines_of(pair[0].out, rank)) == 2 for rank in range(2)), cluster.shown)
    for rank in range(2):
        line, wanted = golden(rank, ["127.0.0.2"] * 2)
        assert line == wanted, f"{line}\n{wanted}"
    (s.folder / "go").touch()
    expect_all(pair[:1], 0)
    nodes.remove_dead_sockets(s)


def json_of_a_node_is_lines_of_objects(s):
    cluster = Loopback(s, 2)
    head = cluster.start(0, s.shell(WHO))
    other = cluster.start(1, "--json", s.shell(WHO))
    expect_all([head, other], 0)
    lines = [json.loads(line) for line in other.out.splitlines()]
    assert lines and all(line["schema"] == 1 for line in lines), cluster.shown()


sandbox.main(__name__)
