"""How nodes of one job know each other, and daemons that wait to be invited."""

import os
import shutil
import signal
import subprocess

import nodes
from nodes import WAITS, WHO, Loopback, Node, expect_all, sandbox
from sandbox import expect, lines_of, wait_until


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


def certificates_of_a_site(folder):
    """A CA and one certificate for each of two nodes, by their DNS names; None without openssl."""
    if shutil.which("openssl") is None:
        return None

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
            "-subj", "/CN=site")
    for name in ("n0", "n1"):
        (folder / f"{name}.ext").write_text(f"subjectAltName=DNS:{name}.site.org\n")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj",
                f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem")
    return lambda name: ["--tls-cert", f"{name}.pem", "--tls-key", f"{name}.key", "--tls-ca", "ca.pem"]


def certificates_of_a_site_will_do(s):
    files = certificates_of_a_site(s.folder)
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
    daemons.kill(0)  # the job's folder is the front end's, not this daemon's
    daemons.start(0)
    (s.folder / "go").touch()
    assert front.wait() == 0, front.shown() + daemons.shown()
    assert lines_of(front.out, 1) == ["done 1 0 of 2"], front.shown()
    wait_until(lambda: not list(s.folder.glob("state0/jobs/*")), "the link to the job is left")
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
