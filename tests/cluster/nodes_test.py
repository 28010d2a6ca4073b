"""One job on several nodes that share a machine: the same command on every node."""

import json
import os
import shutil
import signal
import subprocess

import nodes
from nodes import Loopback, Node, expect_all, sandbox
from sandbox import expect, lines_of, wait_until

WHO = 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_ADDR"\n'
# Runs until the test says so, or fails there.
WAITS = """echo $$ > pid.$RANK.$TORCHELASTIC_RESTART_COUNT
while [ ! -e go ]; do sleep 0.02; done
echo "done $RANK $TORCHELASTIC_RESTART_COUNT of $WORLD_SIZE"
"""


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


def several_tasks_on_a_node_are_its_workers(s):
    s.env["XDG_CONFIG_HOME"] = str(s.folder / "config")
    tasks = []
    for task in range(4):
        node, local = divmod(task, 2)
        env = {"SLURM_JOB_ID": s.mark[:8], "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "127.0.0.[2-3]",
               "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
               "SLURM_NODEID": str(node), "SLURM_PROCID": str(task), "SLURM_LOCALID": str(local),
               "SLURMD_NODENAME": f"127.0.0.{node + 2}"}
        tasks.append(Node(s, f"s{task}", ["launch", s.shell(WHO + "exit 7")], env))
    expect_all(tasks, 1)
    assert lines_of(tasks[0].out, 3) == ["3 1 4 1 2 127.0.0.2"], tasks[0].shown()


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
    assert len(lost.kill()) >= 3, cluster.shown()  # trainctl, traind, keeper and supervisor
    wait_until(lambda: all((s.folder / f"pid.{r}.1").exists() for r in range(2)), cluster.shown, 30)
    (s.folder / "go").touch()
    expect_all(all_nodes[:2], 0)
    assert lines_of(all_nodes[0].out, 1)[-1] == "done 1 1 of 2", cluster.shown()
    assert not lost.pids(), cluster.shown()
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


def daemon_killed_on_a_node_harms_nothing(s):
    cluster = Loopback(s, 2)
    head, other = cluster.start_all(s.shell(WAITS))
    wait_until(lambda: all((s.folder / f"pid.{r}.0").exists() for r in range(2)), cluster.shown)
    assert other.kill("traind"), cluster.shown()
    other.says("started it again")
    other.says("is back in job")
    (s.folder / "go").touch()
    expect_all([head, other], 0)
    assert lines_of(head.out, 1) == ["done 1 0 of 2"], cluster.shown()


def coordinator_killed_is_found_again_by_every_node(s):
    cluster = Loopback(s, 2)
    head, other = cluster.start_all(s.shell(WAITS))
    wait_until(lambda: all((s.folder / f"pid.{r}.0").exists() for r in range(2)), cluster.shown)
    assert head.kill("train-coordinator"), cluster.shown()
    other.says("is back in job")
    (s.folder / "go").touch()
    expect_all([head, other], 0)
    assert lines_of(head.out, 1) == ["done 1 0 of 2"], cluster.shown()


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


def other_key_is_refused_with_what_mends_it(s):
    cluster = Loopback(s, 2)
    head = cluster.start(0, s.shell(WHO))
    head.says("nodes")
    stranger = cluster.start(1, s.shell(WHO), env={"XDG_CONFIG_HOME": str(s.folder / "elsewhere")},
                             name="stranger")
    assert stranger.wait() == 4, cluster.shown()
    assert "cluster.key" in stranger.err and "copy" in stranger.err, cluster.shown()
    other = cluster.start(1, s.shell(WHO))
    expect_all([head, other], 0)


def key_that_others_can_read_is_refused(s):
    key = s.folder / "cluster.key"
    expect(s.run("key", "new", str(key)), 0)
    key.chmod(0o644)
    cluster = Loopback(s, 2)
    for rank in (0, 1):
        node = cluster.start(rank, "--key", str(key), s.shell(WHO), name=f"k{rank}")
        assert node.wait() == 4, node.shown()
        assert "chmod 600" in node.err, node.shown()


def certificates_of_a_site(s):
    """A CA and one certificate for each of two nodes, by their DNS names; None without openssl."""
    if shutil.which("openssl") is None:
        return None

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=s.folder, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
            "-subj", "/CN=site")
    for name in ("n0", "n1"):
        (s.folder / f"{name}.ext").write_text(f"subjectAltName=DNS:{name}.site.org\n")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj",
                f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem")
    return lambda name: ["--tls-cert", f"{name}.pem", "--tls-key", f"{name}.key", "--tls-ca", "ca.pem"]


def certificates_of_a_site_will_do(s):
    files = certificates_of_a_site(s)
    if files is None:
        print("not tried, because openssl is not installed")
        return
    cluster = Loopback(s, 2)
    pair = [cluster.start(i, *files(f"n{i}"), s.shell(WHO)) for i in range(2)]
    expect_all(pair, 0)
    # A node may not speak in another's name.
    cluster = Loopback(s, 2)
    head = cluster.start(0, *files("n0"), "--join-timeout", "20s", s.shell(WHO))
    head.says("nodes")
    liar = cluster.start(1, *files("n0"), s.shell(WHO), name="n9")
    assert liar.wait() == 1, cluster.shown()
    assert "expected node:n9, but node:n0.site.org answered" in liar.err, cluster.shown()
    head.process.send_signal(signal.SIGINT)
    head.wait()
    expect(s.run("launch", "--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "127.0.0.1:29", *files("n0")[:4],
                 "--tls-ca", "n1.pem", "/bin/true"), 4, "cannot be believed")


def waiting_says_every_five_seconds_who_is_missing(s):
    cluster = Loopback(s, 2)
    head = cluster.start(0, s.shell(WHO))
    head.says("1 of 2 nodes", 20)
    other = cluster.start(1, s.shell(WHO))
    expect_all([head, other], 0)


def json_of_a_node_is_lines_of_objects(s):
    cluster = Loopback(s, 2)
    head = cluster.start(0, s.shell(WHO))
    other = cluster.start(1, "--json", s.shell(WHO))
    expect_all([head, other], 0)
    lines = [json.loads(line) for line in other.out.splitlines()]
    assert lines and all(line["schema"] == 1 for line in lines), cluster.shown()


class Daemons:
    """Daemons that listen on 127.0.0.2, 127.0.0.3, … as a system's would."""

    def __init__(self, s, count):
        self.s = s
        self.key = s.folder / "cluster.key"
        expect(s.run("key", "new", str(self.key)), 0)
        self.port = nodes.free_port("127.0.0.2")
        self.processes = [None] * count
        for index in range(count):
            self.start(index)

    def socket(self, index):
        return self.s.folder / f"d{index}.sock"

    def start(self, index, key=None):
        log = open(self.s.folder / f"d{index}.log", "a")
        self.processes[index] = subprocess.Popen(
            [str(sandbox.BIN / "traind"), "--socket", str(self.socket(index)), "--state-dir",
             str(self.s.folder / f"state{index}"), "--listen", f"127.0.0.{index + 2}:{self.port}", "--node",
             f"d{index}", "--key", str(key or self.key)], env=self.s.env, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log)
        wait_until(lambda: self.socket(index).exists(), self.shown)

    def kill(self, index):
        self.processes[index].kill()
        self.processes[index].wait()
        self.socket(index).unlink()

    def launch(self, *words):
        return Node(self.s, "front", ["launch", "--daemon", str(self.socket(0)), "--daemon-port",
                                      str(self.port), "--key", str(self.key), *words])

    def shown(self):
        return "\n".join(path.read_text() for path in sorted(self.s.folder.glob("d*.log")))

    def end(self):
        for process in self.processes:
            process.terminate()
            process.wait()


def listed_daemons_are_invited(s):
    daemons = Daemons(s, 3)
    front = daemons.launch("--nodes", "127.0.0.[2-4]:2", s.shell(WHO))
    assert front.wait() == 0, front.shown() + daemons.shown()
    for rank in range(6):
        assert lines_of(front.out, rank) == [f"{rank} {rank % 2} 6 {rank // 2} 3 127.0.0.2"], front.shown()
    assert "[127.0.0.4:5]" in front.out, front.shown()
    wait_until(lambda: not list(s.folder.glob("state*/parts/*")), "parts are left")
    daemons.end()


def invited_daemon_that_starts_late_or_again_is_found(s):
    daemons = Daemons(s, 2)
    daemons.kill(1)
    front = daemons.launch("--nodes", "127.0.0.[2-3]", "--lease", "30s", s.shell(WAITS))
    front.says("1 of 2 nodes", 20)
    daemons.start(1)
    wait_until(lambda: all((s.folder / f"pid.{r}.0").exists() for r in range(2)), front.shown)
    daemons.kill(1)
    daemons.start(1)  # it takes over the workers that it finds
    (s.folder / "go").touch()
    assert front.wait() == 0, front.shown() + daemons.shown()
    assert lines_of(front.out, 1) == ["done 1 0 of 2"], front.shown()
    daemons.end()


def daemon_with_another_key_is_not_believed(s):
    daemons = Daemons(s, 2)
    daemons.kill(1)
    other = s.folder / "other.key"
    expect(s.run("key", "new", str(other)), 0)
    daemons.start(1, key=other)
    front = daemons.launch("--nodes", "127.0.0.[2-3]", "--join-timeout", "2s", s.shell(WHO))
    assert front.wait() == 6, front.shown() + daemons.shown()
    log = next(s.folder.glob("state0/trainctl/jobs/*/coordinator.log"), None) or \
        next(s.folder.glob("state*/**/coordinator.log"))
    assert "same cluster key" in log.read_text(), log.read_text()
    daemons.end()


def list_without_this_machine_is_refused(s):
    expect(s.run("launch", "--nodes", "203.0.113.[1-2]", "/bin/true"), 2, "this machine is none of them")
    expect(s.run("launch", "--nodes", "n[1-", "/bin/true"), 2, "not closed")
    expect(s.run("launch", "--nodes", "n[0-999999999]", "/bin/true"), 2, "more than 65536")


def listening_without_a_key_is_refused_with_what_mends_it(s):
    if os.geteuid() != 0 or os.path.exists("/etc/trainctl/cluster.key"):
        return  # others have a key of their own, made at first use
    result = subprocess.run([str(sandbox.BIN / "traind"), "--socket", str(s.folder / "x.sock"), "--state-dir",
                             str(s.folder / "x"), "--listen", "0.0.0.0"], env=s.env, capture_output=True,
                            text=True, timeout=60, check=False)
    assert result.returncode == 1 and "trainctl key new" in result.stderr, result


sandbox.main(__name__)
