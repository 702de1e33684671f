"""A registry that is kept in ZooKeeper, Debian's server, by real superpeers."""
import re
import shutil
import signal
import socket
import subprocess

import harness
from superpeers_test import first_cid, free_addresses

CLASSPATH = "/usr/share/java/zookeeper.jar"
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"


class Server:
    """One ZooKeeper server on a free port, with its data in the test's folder."""

    def __init__(self, test):
        self.test = test
        self.address = free_addresses(1)[0]
        self.process = None
        test.addCleanup(self.kill)
        java = shutil.which("java")
        test.assertIsNotNone(java, "the package zookeeper brings java")
        host, port = self.address.split(":")
        config = test.write("zoo.cfg", f"dataDir={test.folder}/zookeeper\nclientPort={port}\n"
                            f"clientPortAddress={host}\ntickTime=200\nadmin.enableServer=false\n"
                            "4lw.commands.whitelist=ruok\n")
        self.words = [java, "-Xmx128m", "-cp", CLASSPATH, MAIN, str(config)]

    def start(self):
        log = open(self.test.folder / "zookeeper.log", "ab")  # closed with the process's copy
        self.process = subprocess.Popen(self.words, stdout=log, stderr=log,
                                        stdin=subprocess.DEVNULL)
        log.close()
        harness.eventually(self.test, "ZooKeeper serves", 120, self.serves)
        return self

    def serves(self):
        host, port = self.address.split(":")
        try:
            with socket.create_connection((host, int(port)), 1) as link:
                link.sendall(b"ruok")
                return link.recv(16) == b"imok"
        except OSError:
            return False

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)


class InZooKeeper(harness.Case):
    def setUp(self):
        super().setUp()
        self.server = Server(self).start()
        self.addresses = free_addresses(3)
        self.starts = 0
        self.superpeers = [self.start(i).wait_ready() for i in range(3)]
        self.peers = [self.join("peer0"), self.join("peer1")]

    def flags(self):
        return ("--registry", "zookeeper", "--zookeeper", self.server.address, "--failure-ns", "1s")

    def start(self, index):
        self.starts += 1
        return harness.Node(self, f"superpeer{index}-{self.starts}", "--roles", "superpeer",
                            "--listen", self.addresses[index], "--data-dir",
                            str(self.folder / f"data{index}"), *self.flags())

    def join(self, name):
        return harness.Node(self, name, "--roles", "peer", "--superpeers",
                            ",".join(self.addresses), "--data-dir", str(self.folder / name),
                            *self.flags()).wait_ready()

    def states(self, node):
        done = self.run_program("shoal", "node", "list", "--connect", node.address)
        found = {}
        for line in done.text.splitlines():
            row = re.search(r"\b(up|left|failed)\s+(\S+)", line)
            if row:
                found[row.group(2)] = row.group(1)
        return found

    def seen(self, node, address, state):
        harness.eventually(self, f"{address} is {state} at {node.address}", 60,
                           lambda: self.states(node).get(address) == state)

    def leader(self):
        """The index of the superpeer that leads: the last one of which a log says so."""
        def times(node):
            return re.findall(r"^(\S+) info +zookeeper +this superpeer leads", node.log(), re.MULTILINE)
        harness.eventually(self, "one leads", 60, lambda: any(map(times, self.superpeers)))
        return max(range(3), key=lambda i: max(times(self.superpeers[i]), default=""))

    def chunk(self):
        cid = first_cid(self.shoal(self.peers[0], "chunk", "create", "8").text)
        self.shoal(self.peers[0], "chunk", "put", cid, "--text", "survives")
        return cid

    def test_names_without_two_of_three_superpeers(self):
        """Names, barriers and scratch are at all superpeers; each that is killed has a successor."""
        for node in self.superpeers:
            harness.eventually(self, "all hold everything", 60,
                               lambda node=node: re.search(r"ring is whole .*copies=3",
                                                           node.log()))
        names = {f"name/{i}": f"64:{i + 1}" for i in range(30)}
        node = self.superpeers[0]
        for name, cid in names.items():
            self.shoal(node, "name", "set", name, cid, "--absent")
        self.shoal(node, "scratch", "put", "state", "--text", "running")
        barrier = self.shoal(node, "barrier", "create", "2").text.strip()
        for i in range(2):
            self.superpeers[i].kill()
            node = self.superpeers[i + 1]
            self.seen(node, self.addresses[i], "failed")
            found = {row["name"]: row["cid"] for row in
                     self.shoal_json(node, "name", "list", "name/")["names"]}
            self.assertEqual(found, names)
            name = f"name/{i}"
            names[name] = f"65:{i + 1}"
            self.shoal(node, "name", "set", name, names[name], "--current", f"64:{i + 1}")
            self.assertEqual(self.shoal(node, "scratch", "get", "state").text, "running\n")
            self.assertEqual(self.shoal_json(node, "barrier", "list")["barriers"][0]["barrier"],
                             barrier)

    def test_names_without_all_superpeers(self):
        """Whatever was acknowledged is there when all superpeers were killed at once."""
        names = {f"name/{i}": f"64:{i + 1}" for i in range(60)}
        for i, (name, cid) in enumerate(names.items()):
            self.shoal(self.superpeers[i % 3], "name", "set", name, cid, "--absent")
        nids = [node.nid for node in self.superpeers]
        for node in self.superpeers:
            node.process.kill()
        for node in self.superpeers:
            node.kill()
        self.superpeers = [self.start(i).wait_ready() for i in range(3)]
        self.assertEqual([node.nid for node in self.superpeers], nids)
        for node in self.superpeers:
            found = {row["name"]: row["cid"] for row in
                     self.shoal_json(node, "name", "list", "name/")["names"]}
            self.assertEqual(found, names)
        self.shoal(self.superpeers[0], "name", "set", "name/0", "65:1", "--current", "64:1")

    def test_leader_is_killed(self):
        cid, leader = self.chunk(), self.leader()
        self.superpeers[leader].kill()
        others = [node for i, node in enumerate(self.superpeers) if i != leader]
        late = self.join("late")
        for node in others:
            self.seen(node, late.address, "up")
            self.seen(node, self.addresses[leader], "failed")
            self.assertEqual(self.shoal(node, "chunk", "get", cid, "--raw").stdout, b"survives")
        self.peers[1].kill()
        for node in others:
            self.seen(node, self.peers[1].address, "failed")
        nid = self.superpeers[leader].nid
        self.superpeers[leader] = self.start(leader).wait_ready()
        self.assertEqual(self.superpeers[leader].nid, nid)
        for node in self.superpeers:
            self.seen(node, self.addresses[leader], "up")
            self.seen(node, self.peers[1].address, "failed")
        late.stop()
        for node in self.superpeers:
            self.seen(node, late.address, "left")

    def test_all_are_killed(self):
        cid = self.chunk()
        for node in self.superpeers:
            node.kill()
        self.server.kill()
        self.server.start()
        self.superpeers = [self.start(i).wait_ready() for i in range(3)]
        for node in self.superpeers:
            for peer in self.peers:
                self.seen(node, peer.address, "up")
            self.assertEqual(self.shoal(node, "chunk", "get", cid, "--raw").stdout, b"survives")
        late = self.join("late")
        self.assertNotIn(late.nid, [peer.nid for peer in self.peers])

    def test_moved_chunks_are_remembered(self):
        """Chunks move without a superpeer, and are found when all superpeers were killed."""
        one, two = self.peers
        self.shoal(one, "chunk", "create", 8, "--count", 2000, "--node", one.nid)
        for local in (1, 1000, 2000):
            self.shoal(one, "chunk", "put", f"{one.nid}:{local}", "--text", f"{local:08}")
        self.shoal(one, "migrate", one.nid, "--to", two.nid, "--last", f"{one.nid}:1000")
        leader = self.leader()
        self.superpeers[leader].kill()
        self.shoal(self.superpeers[(leader + 1) % 3], "migrate", one.nid, "--to", two.nid)
        for index, node in enumerate(self.superpeers):
            if index != leader:
                node.kill()
        self.superpeers = [self.start(i).wait_ready() for i in range(3)]
        for node in self.superpeers:
            self.seen(node, two.address, "up")
            for local in (1, 1000, 2000):
                got = self.shoal(node, "chunk", "get", f"{one.nid}:{local}", "--raw").stdout
                self.assertEqual(got, b"%08d" % local)

    def test_zookeeper_is_away(self):
        """Without it nobody joins and no superpeer answers; peers do, and nobody is blamed."""
        self.server.kill()
        for node in self.superpeers:
            self.refused("shoal", "node", "list", "--connect", node.address, says="majority")
        # A peer answers with the view that it has.
        self.assertEqual(self.states(self.peers[0]).get(self.peers[0].address), "up")
        self.server.start()
        late = self.join("late")
        for node in self.superpeers:
            self.seen(node, late.address, "up")
            for peer in self.peers:
                self.seen(node, peer.address, "up")

    def test_leader_is_stopped_for_a_while(self):
        """Its session ends: another one leads, and when it goes on it is one of the others."""
        leader = self.leader()
        self.superpeers[leader].process.send_signal(signal.SIGSTOP)
        self.addCleanup(self.superpeers[leader].process.send_signal, signal.SIGCONT)
        others = [node for i, node in enumerate(self.superpeers) if i != leader]
        for node in others:
            self.seen(node, self.addresses[leader], "failed")
        self.assertNotEqual(self.leader(), leader)
        self.superpeers[leader].process.send_signal(signal.SIGCONT)
        for node in self.superpeers:
            self.seen(node, self.addresses[leader], "up")
            for peer in self.peers:
                self.seen(node, peer.address, "up")

    def test_promotion_and_demotion(self):
        done = self.shoal_json(self.peers[0], "node", "promote", self.peers[0].nid)
        self.assertEqual(done["superpeer"], 4)
        gone = self.superpeers[self.leader()]
        self.demote(self.peers[1], gone.nid)
        self.assertEqual(gone.wait_end(), 0)
        for node in self.superpeers + self.peers:
            if node is not gone:
                self.seen(node, gone.address, "left")
                self.seen(node, done["address"], "up")

    def test_a_folder_of_another_cluster_is_refused(self):
        """Two clusters in one ZooKeeper: a superpeer's folder is of one of them, and begins none where
        there is none. It serves its own again."""
        self.superpeers[2].kill()
        self.seen(self.superpeers[0], self.addresses[2], "failed")
        def elsewhere(name, cluster, folder, listen):
            return harness.Node(self, name, "--roles", "superpeer", "--listen", listen, "--data-dir",
                                str(self.folder / folder), "--cluster", cluster, *self.flags())
        other = elsewhere("other", "other", "other", free_addresses(1)[0]).wait_ready()
        for cluster, says in (("other", "superpeer of another cluster"),
                              ("nobody", "ZooKeeper has no registry for it")):
            stray = elsewhere(f"stray-{cluster}", cluster, "data2", self.addresses[2])
            self.assertEqual(stray.wait_end(), 1)
            self.assertRegex(stray.log(), says)
            self.assertIn("ECLUSTER", stray.log())
        self.assertNotIn(self.addresses[2], self.shoal(other, "node", "list", "--cluster", "other").text)
        self.superpeers[2] = self.start(2).wait_ready()
        self.seen(self.superpeers[0], self.addresses[2], "up")

    def test_servers_are_needed(self):
        self.refused("shoald", "--roles", "superpeer", "--listen", "127.0.0.1:0", "--registry",
                     "zookeeper", says="option zookeeper", status=2)
        self.refused("shoald", "--registry", "etcd", says="option registry", status=2)

    def test_data_dir_is_needed(self):
        self.refused("shoald", "--roles", "superpeer", "--listen", "127.0.0.1:0", *self.flags(),
                     says="a superpeer needs a data_dir", status=2)


if __name__ == "__main__":
    import unittest
    unittest.main()
