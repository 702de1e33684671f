"""The processes of a campaign: superpeers, peers that keep their chunks at each other, and workers; where the test may make
network namespaces, each on a machine of its own."""
import mmap
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import harness  # noqa: E402
import history  # noqa: E402
import network  # noqa: E402
from superpeers_test import free_addresses  # noqa: E402

PORT = 4100
REPLICAS = 2
WELL_MAX = 180      # seconds until a cluster is well again; reached only when something is wrong
WORKER_TIMEOUT = 600
TABLE_BYTES = 16 + 65536 * 24
PHASE_WRITE, PHASE_CHECK, PHASE_END = range(3)
SMALL_DISK = 320    # MiB, of which a log leaves 64 to others
DISK = f"mount -t tmpfs -o size={SMALL_DISK}m,mode=755 none"


class Server:
    """A node at its place: its processes follow each other on its folder, at its address."""

    def __init__(self, cluster, name, role, machine, address):
        self.cluster, self.name, self.role, self.machine, self.address = cluster, name, role, machine, address
        self.folder = cluster.folder / f"{name}.data"
        self.prefix = ()
        self.lives, self.node = 0, None

    def start(self):
        self.lives += 1
        flags = ["--roles", self.role, "--listen", self.address, "--data-dir", self.folder, *self.cluster.flags]
        if self.role == "peer":
            flags += self.cluster.peer_flags
        prefix = (*self.prefix, *self.cluster.on(self.machine))
        self.node = harness.Node(self.cluster, f"{self.name}-{self.lives}", *flags, prefix=prefix)
        self.cluster.addCleanup(self.go_on, self.node)
        # Whatever ends it is a fault of ours, or seen by `alive`.
        self.node.statuses |= {-signal.SIGKILL, -signal.SIGTERM}
        return self

    def is_up(self):
        return self.node is not None and self.node.process.poll() is None

    @staticmethod
    def go_on(node):
        """One that is stopped does not hear that it is to end."""
        if node.process.poll() is None:
            node.process.send_signal(signal.SIGCONT)

    def signal(self, number):
        self.node.process.send_signal(number)

    def kill(self):
        self.node.kill()

    def __str__(self):
        return self.name


class Table:
    """What the workers share (table.h)."""

    def __init__(self, path):
        self.path = path
        path.write_bytes(b"")
        os.truncate(path, TABLE_BYTES)
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), TABLE_BYTES)

    def phase(self, phase):
        struct.pack_into("<I", self.memory, 0, phase)

    def era(self, era):
        struct.pack_into("<I", self.memory, 4, era)


class Cluster(harness.Case):
    """What a fault may do to a cluster, and how one waits until it is well. settings and luck are the campaign's."""

    settings = None

    def setUp(self):
        super().setUp()
        self.luck = random.Random(self.settings.seed)
        self.secret = self.write("secret", "of a campaign of the tests")
        self.began = time.monotonic()
        self.outages, self.workers, self.histories, self.done = [], [], [], []
        self.killed = set()  # workers, by a fault
        self.draw()
        self.net = None
        self.why_no_network = network.why_not()
        if not self.why_no_network:
            self.net = network.Network(self.superpeer_count + self.peer_count + 1)
            self.addCleanup(self.net.remove)
        self.client_machine = self.superpeer_count + self.peer_count + 1
        self.servers_make()
        self.small_disk_make()
        self.table = Table(self.folder / "table")

    def start(self):
        for server in self.superpeers + self.peers:
            server.start()
        for server in self.superpeers + self.peers:
            server.node.wait_ready()

    def draw(self):
        """The size of the cluster."""
        settings = self.settings
        self.superpeer_count = settings.superpeers or self.luck.choice((1, 3))
        self.peer_count = settings.peers or self.luck.choice((4, 5))
        self.failure_s = settings.failure_s

    def on(self, machine):
        return self.net.prefix(machine) if self.net else ()

    def servers_make(self):
        count = self.superpeer_count + self.peer_count
        if self.net:
            addresses = [f"{self.net.address(machine)}:{PORT}" for machine in range(1, count + 1)]
        else:
            addresses = free_addresses(count)
        servers = [Server(self, f"superpeer{i}" if i < self.superpeer_count else f"peer{i - self.superpeer_count}",
                          "superpeer" if i < self.superpeer_count else "peer", i + 1, address)
                   for i, address in enumerate(addresses)]
        self.superpeers, self.peers = servers[:self.superpeer_count], servers[self.superpeer_count:]
        silence = f"{self.failure_s}s"
        self.flags = ["--superpeers", ",".join(addresses[:self.superpeer_count]), "--secret-file", self.secret,
                      "--failure-ns", silence, "--peer-silence-ns", silence]
        self.peer_flags = ["--store-bytes-max", "256MiB", "--chunk-bytes-max", "1MiB", "--zone-bytes", "2MiB", "--log-segment-bytes", "256KiB",
                           "--log-buffer-bytes", "16MiB", "--replicas-at", "peers", "--replicas", str(REPLICAS)]

    def small_disk_make(self):
        """The last peer's disk is small, and its own: in the mounts of a process that waits, which the peer's processes join."""
        self.small = None
        server = self.peers[-1]
        server.folder.mkdir()
        if os.geteuid() != 0:
            return
        holder = subprocess.Popen(["unshare", "--mount", "sh", "-c", f"{DISK} '{server.folder}' && echo ok && exec sleep 1000000"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(holder.stdout.close)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        if holder.stdout.readline() == b"ok\n":
            self.small = server
            self.small_disk = pathlib.Path(f"/proc/{holder.pid}/root{server.folder}")
            server.prefix = ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--")

    # --- Workers ---------------------------------------------------------------------------------------------------

    def worker_start(self):
        number = len(self.histories) + 1
        path = self.folder / f"history-{number}"
        with open(self.folder / f"worker-{number}.log", "ab") as log:
            process = subprocess.Popen(
                [*self.on(self.client_machine), str(harness.BIN / "campaign_worker"), self.superpeer_addresses(), str(self.secret), str(number),
                 str(self.settings.seed), str(self.table.path), str(path), str(WORKER_TIMEOUT)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=harness.clean_environment(), cwd=self.folder)
        self.addCleanup(self.process_end, process)
        self.workers.append(process)
        self.histories.append(path)
        return process

    @staticmethod
    def process_end(process):
        if process.poll() is None:
            process.kill()
        process.wait()

    def superpeer_addresses(self):
        return ",".join(server.address for server in self.superpeers)

    def workers_end(self, phase):
        """Waits until all workers have ended; each of them makes one call at most until then."""
        self.table.phase(phase)
        deadline = time.monotonic() + self.settings.call_s
        for process in self.workers:
            try:
                status = process.wait(max(1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.fail(f"a call of a worker has not ended within {self.settings.call_s} s")
            self.assertEqual(status, -signal.SIGKILL if process in self.killed else 0, "a worker failed")
        self.workers = []

    def calls(self):
        """All that workers have written down."""
        calls = []
        for number, path in enumerate(self.histories, start=1):
            if path.exists():
                with open(path, encoding="ascii", errors="replace") as lines:
                    calls += history.read_calls(number, lines)
        return calls

    # --- Whether all is well ---------------------------------------------------------------------------------------

    def ask(self, *words):
        """`shoal WORDS --json`, asked of the superpeers; None where it fails."""
        try:
            done = subprocess.run([*self.on(self.client_machine), str(harness.BIN / "shoal"), *map(str, words), "--json", "--connect",
                                   self.superpeer_addresses(), "--secret-file", str(self.secret)],
                                  capture_output=True, env=harness.clean_environment(), cwd=self.folder, timeout=harness.COMMAND_MAX,
                                  check=False)
        except subprocess.TimeoutExpired:
            return None
        self.assertNotRegex(done.stderr.decode(errors="replace"), harness.CRASH)
        if done.returncode != 0:
            return None
        return harness.json.loads(done.stdout)

    def must_ask(self, *words):
        """The same of a cluster that is well: asked again where it fails, as while a superpeer hands shards over."""
        return harness.eventually(self, f"shoal {' '.join(map(str, words))}", harness.READY_MAX, lambda: self.ask(*words))

    def why_not_well(self):
        """What is missing until the cluster may lose as much as was promised; "" if nothing is."""
        status = self.ask("status")
        if status is None:
            return "status fails"
        nodes = {node["address"]: node for node in status["nodes"] if node["state"] == "up"}
        for server in self.superpeers + self.peers:
            if server.is_up() and server.address not in nodes:
                return f"{server} is not up"
            if not server.is_up() and server.address in nodes:
                return f"{server} still counts as up"
        zones = status["zones"]
        self.assertEqual(zones["lost"], 0, f"zones are lost: {zones}")
        if zones["under_replicated"] or zones.get("recovering", 1):
            return f"zones: {zones}"
        # A zone is served if a peer says that it is its own.
        served = 0
        for peer in self.peers:
            if peer.is_up():
                info = self.ask("log", "info", nodes[peer.address]["nid"])
                if info is None:
                    return f"{peer} does not say what its zones are"
                served += len(info["own"])
        if served < zones["all"]:
            return f"{zones['all']} zones, of which {served} are served"
        return self.why_not_whole()

    def why_not_whole(self):
        """Each shard must be at each superpeer before one of these fails."""
        metadata = self.ask("metadata")
        if metadata is None:
            return "metadata fails"
        up = sum(server.is_up() for server in self.superpeers)
        reports = [row for row in metadata["superpeers"] if "shards" in row]
        if len(reports) < up:
            return f"{len(reports)} of {up} superpeers say what they have"
        copies = min(len(shard["replicas"]) for row in reports for shard in row["shards"])
        return f"a shard is at {copies} of {up} superpeers" if copies < up else ""

    def wait_well(self, within_s=WELL_MAX):
        """Waits until all is well, for a while; every process that should run does."""
        deadline = time.monotonic() + within_s
        well = 0
        while well < 2:
            self.alive()
            why = self.why_not_well()
            well = 0 if why else well + 1
            if why and time.monotonic() > deadline:
                self.fail(f"not well after {within_s} s: {why}")
            time.sleep(0.1)

    def alive(self):
        """No process has ended by itself, nor been told off by a sanitizer."""
        for server in self.superpeers + self.peers:
            node = server.node
            if node.process.returncode is None and node.process.poll() is not None:
                self.fail(f"{server} ended with {node.process.returncode}:\n{node.log()[-4000:]}")
        for process in self.workers:
            if process.poll() is not None and process not in self.killed:
                self.fail(f"a worker ended by itself, with {process.returncode}")

    def say(self, text):
        line = f"{time.monotonic() - self.began:7.1f} s  {text}"
        print(line, flush=True)
        with open(self.folder / "said", "a", encoding="utf-8") as file:
            print(line, file=file)
