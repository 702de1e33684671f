"""A process that was stopped for longer than its lease answers nothing of what waits in its sockets.

The client is stopped as well, so that it does not give its connection up: whatever the node sends
when it goes on is there when the client goes on. By then the value is another one, so an answer
that was made after the lease shows the old one. A peer that was declared failed meanwhile goes on as
its next life, in the same process, by itself.
"""
import os
import pathlib
import re
import select
import signal
import subprocess
import time
import unittest

import harness
from superpeers_test import free_addresses

FAILURE = ("--failure-ns", "1s")
WAIT_MAX = 60  # seconds; reached only when something is wrong
LOGGED = ("--replicas", "1", "--replicas-at", "self", "--durability", "replicated",
          "--store-bytes-max", "64MiB")
CLIENTS, NAMES = 4, 6
HEADER_BYTES = 10  # of a message (docs/wire-format.md)


def sockets():
    """(local port, remote port, bytes received and not read, inode) of each TCP socket of IPv4."""
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        yield (int(words[1].split(":")[1], 16), int(words[2].split(":")[1], 16),
               int(words[4].split(":")[1], 16), words[9])


def waiting(node, client):
    """Bytes of a client that a node has not read."""
    inodes = set()
    for link in pathlib.Path(f"/proc/{client.process.pid}/fd").iterdir():
        try:
            found = re.match(r"socket:\[(\d+)\]", os.readlink(link))
        except FileNotFoundError:  # closed since it was listed
            continue
        if found:
            inodes.add(found.group(1))
    rows = list(sockets())
    ports = {local for local, _, _, inode in rows if inode in inodes}
    port = int(node.address.rsplit(":", 1)[1])
    return sum(unread for local, remote, unread, _ in rows if local == port and remote in ports)


def has_answered(client):
    return bool(select.select([client.process.stdout], [], [], 0)[0])


class Stopped(harness.Case):
    def stop(self, process):
        """Returns when each thread stands still, which is a little after the signal."""
        process.send_signal(signal.SIGSTOP)
        self.addCleanup(process.send_signal, signal.SIGCONT)
        harness.eventually(self, "it is stopped", WAIT_MAX, lambda: all(
            (task / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
            for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir()))

    def write_line(self, client, line):
        client.process.stdin.write(f"{line}\n".encode())
        client.process.stdin.flush()

    def seen(self, client, node, state):
        harness.eventually(self, f"{node.name} is {state}", WAIT_MAX,
                           lambda: client.states().get(node.nid) == state)

    def next_life(self, peer):
        """Waits until the peer has published its next life; the ready file of the one before goes."""
        harness.eventually(self, "its life is over", WAIT_MAX,
                           lambda: "the next one begins in this process" in peer.log())
        peer.wait_ready()

    def test_a_peer(self):
        """A peer with a log of its own has its chunks again, under its ID."""
        superpeer = self.superpeer("superpeer", *FAILURE, "--data-dir", self.folder / "superpeer.data")
        peer = self.peer("peer", superpeer, *FAILURE, *LOGGED, "--data-dir", self.folder / "data")
        nid, pid = peer.nid, peer.process.pid
        other = harness.Client(self, [superpeer.address], 120_000_000_000)
        self.seen(other, peer, "up")
        cid = other.do("create", 3, peer.nid)
        other.do("put", cid, "old")
        client = harness.Client(self, [superpeer.address], 120_000_000_000)
        self.assertEqual(client.do("get", cid), "old")
        self.stop(peer.process)
        before = waiting(peer, client)
        self.write_line(client, f"get {cid}")
        harness.eventually(self, "the request waits", WAIT_MAX,
                           lambda: waiting(peer, client) > before)
        self.stop(client.process)
        self.seen(other, peer, "failed")
        peer.process.send_signal(signal.SIGCONT)
        self.next_life(peer)
        self.assertEqual((peer.nid, peer.process.pid), (nid, pid))
        self.assertRegex(peer.ready_file.read_text(), f"pid={pid}\\b")
        self.seen(other, peer, "up")
        harness.eventually(self, "it is written", WAIT_MAX,
                           lambda: other.ask("put", cid, "new") == "ok")
        client.process.send_signal(signal.SIGCONT)
        self.assertEqual(client.answer(), "ok new")
        self.assertIn("fenced: the lease has run out", peer.log())
        peer.stop()
        harness.eventually(self, "it has left", WAIT_MAX, lambda: other.states()[nid] == "left")

    def test_a_peer_without_a_disk(self):
        """It is another node, and an empty one, at its address; what it had is lost, for every client."""
        superpeer = self.superpeer("superpeer", *FAILURE)
        (address,) = free_addresses(1)
        peer = self.peer("peer", superpeer, *FAILURE, "--listen", address)
        nid = peer.nid
        client = harness.Client(self, [superpeer.address], 5_000_000_000)
        self.seen(client, peer, "up")
        cid = client.do("create", 3, nid)
        client.do("put", cid, "old")
        for _ in range(2):
            nid = peer.nid
            self.stop(peer.process)
            self.seen(client, peer, "failed")
            peer.process.send_signal(signal.SIGCONT)
            harness.eventually(self, "it is another node", WAIT_MAX,
                               lambda: peer.is_ready() and peer.nid != nid)
            self.assertEqual(peer.address, address)
            self.seen(client, peer, "up")
            self.assertEqual(client.states()[nid], "failed")
            self.assertRegex(client.ask("get", cid), "^SHOAL_(EFAILED|ENOCHUNK)")
            self.assertRegex(client.ask("put", cid, "new"), "^SHOAL_(EFAILED|ENOCHUNK)")
            client.do("get", client.do("create", 3, peer.nid))
        peer.stop()

    def test_a_stop_is_not_lost(self):
        """SIGTERM that comes while a life ends, or before the next one serves, stops the process in order."""
        superpeer = self.superpeer("superpeer", *FAILURE)
        client = harness.Client(self, [superpeer.address], 5_000_000_000)
        for delay_ms in (0, 1, 3, 10, 30, 100):
            peer = self.peer(f"peer{delay_ms}", superpeer, *FAILURE)
            self.seen(client, peer, "up")
            self.stop(peer.process)
            self.seen(client, peer, "failed")
            peer.process.send_signal(signal.SIGCONT)
            time.sleep(delay_ms / 1000)
            peer.stop()

    def test_a_promoted_peer(self):
        """The superpeer in the peer's process takes part again as it is, while the peer's next life begins."""
        addresses = free_addresses(2)
        superpeers = [harness.Node(self, f"superpeer{number}", "--roles", "superpeer", "--listen",
                                   address, "--superpeers", ",".join(addresses), "--data-dir",
                                   self.folder / f"data{number}", *FAILURE)
                      for number, address in enumerate(addresses, start=1)]
        for node in superpeers:
            node.wait_ready()
        peer = self.peer("peer", superpeers[0], *FAILURE, *LOGGED, "--data-dir", self.folder / "data")
        nid = peer.nid
        client = harness.Client(self, addresses, 120_000_000_000)
        self.seen(client, peer, "up")
        cid = client.do("create", 3, nid)
        client.do("put", cid, "old")
        self.shoal(superpeers[0], "node", "promote", nid)
        self.superpeer_is(superpeers[0], 3, "up")
        for _ in range(2):
            self.stop(peer.process)
            self.seen(client, peer, "failed")
            self.superpeer_is(superpeers[0], 3, "failed")
            peer.ready_file.unlink()
            peer.process.send_signal(signal.SIGCONT)
            peer.wait_ready()
            self.assertEqual(peer.nid, nid)
            self.superpeer_is(superpeers[0], 3, "up")
            self.seen(client, peer, "up")
            self.assertEqual(client.do("get", cid), "old")
        self.assertEqual(peer.log().count("the next one begins in this process"), 2)
        self.assertEqual(peer.log().count("superpeer serves"), 1)
        self.refused("shoal", "node", "promote", nid, "--connect", superpeers[0].address,
                     says="has a superpeer already")
        # Nobody else can take the folder, neither now nor in between.
        other = harness.Node(self, "other", "--superpeers", addresses[0], *FAILURE, "--data-dir",
                             self.folder / "data")
        self.assertEqual(other.wait_end(), harness.FAILED)
        peer.stop()

    def superpeer_is(self, node, nid, state):
        harness.eventually(self, f"superpeer {nid} is {state}", WAIT_MAX, lambda: any(
            (row["nid"], row["state"]) == (nid, state)
            for row in self.shoal_json(node, "node", "list")["nodes"]))

    def test_a_superpeer(self):
        addresses = free_addresses(3)
        superpeers = [harness.Node(self, f"superpeer{number}", "--roles", "superpeer", "--listen",
                                   address, "--superpeers", ",".join(addresses), "--data-dir",
                                   self.folder / f"data{number}", *FAILURE)
                      for number, address in enumerate(addresses, start=1)]
        for node in superpeers:
            node.wait_ready()
        stopped = superpeers[2]
        harness.eventually(self, "it owns shards", WAIT_MAX, lambda: any(
            row["nid"] == stopped.nid and row.get("shards_owned", 0) >= 10
            for row in self.shoal_json(stopped, "metadata")["superpeers"]))
        other = harness.Client(self, addresses[:2], 120_000_000_000)
        clients = [harness.Client(self, addresses, 120_000_000_000) for _ in range(CLIENTS)]
        names = {client: [f"name{number}-{index}" for index in range(NAMES)]
                 for number, client in enumerate(clients)}
        for client in clients:
            for name in names[client]:
                self.name(other, name, "64:1")
                self.assertEqual(client.do("named", name), "64:1")  # it knows whom to ask
        self.stop(stopped.process)
        asking = {client: self.ask_the_stopped(client, stopped, names[client])
                  for client in clients}
        self.assertTrue(any(asking.values()), "the stopped superpeer has no shard of a name")
        self.seen(other, stopped, "failed")
        for client in clients:
            for name in names[client]:
                self.name(other, name, "65:2")
        stopped.process.send_signal(signal.SIGCONT)
        self.seen(other, stopped, "up")
        for client, name in asking.items():
            client.process.send_signal(signal.SIGCONT)
            if name:
                self.assertEqual(client.answer(), "ok 65:2")
            for name in names[client]:
                self.assertEqual(client.do("named", name), "65:2")

    def name(self, client, name, cid):
        harness.eventually(self, f"{name} is set", WAIT_MAX,
                           lambda: client.ask("name", name, cid) == "ok")

    def ask_the_stopped(self, client, stopped, names):
        """Asks for names until the question waits in the sockets of the stopped one, and stops the
        client; the name, None if others have answered for all."""
        for name in names:
            before = waiting(stopped, client)
            self.write_line(client, f"named {name}")
            # What keeps a connection alive is a header, a question is more.
            harness.eventually(self, "it has asked", WAIT_MAX, lambda: has_answered(client) or (
                waiting(stopped, client) - before) % HEADER_BYTES)
            if not has_answered(client):
                self.stop(client.process)
                return name
            self.assertEqual(client.answer(), "ok 64:1")
        return None

    def watch(self, superpeer, silence):
        path = self.folder / f"watch{silence}"
        with open(path, "wb") as log:
            process = subprocess.Popen(
                [str(harness.BIN / "shoal"), "node", "watch", "--connect", superpeer.address],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=harness.clean_environment(SHOAL_PEER_SILENCE_NS=silence))
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        harness.eventually(self, "it watches", WAIT_MAX, lambda: b"up" in path.read_bytes())
        return path

    def test_a_command_is_as_patient_as_it_is_told(self):
        """Commands go by their own peer_silence_ns."""
        superpeer = self.superpeer("superpeer")
        patient, other = self.watch(superpeer, "60s"), self.watch(superpeer, "4s")
        self.stop(superpeer.process)
        told = harness.eventually(
            self, "the connection is given up", WAIT_MAX,
            lambda: re.search(r"given up .*silence_ns=(\d+)", other.read_text()))
        superpeer.process.send_signal(signal.SIGCONT)
        self.assertGreaterEqual(int(told.group(1)), 4_000_000_000)
        self.assertNotIn("given up", patient.read_text())


if __name__ == "__main__":
    unittest.main()
