"""Migration through the programs: ranges, drains, balance, kills, while a client writes all the time."""
import concurrent.futures
import threading
import unittest

import harness


class Writer(threading.Thread):
    """Adds 1 to each of some chunks again and again, a process for each, and counts."""

    def __init__(self, test, node, cids):
        super().__init__()
        self.test, self.node, self.cids = test, node, cids
        self.counts = dict.fromkeys(cids, 0)
        self.failures = []
        self.ends = threading.Event()

    def run(self):
        while not self.ends.is_set():
            for cid in self.cids:
                done = self.test.run_program("shoal", "chunk", "add", cid, "1", "--connect",
                                             self.node.address)
                if done.returncode:
                    self.failures.append(done.stderr.decode())
                    return
                self.counts[cid] += 1

    def end(self):
        self.ends.set()
        self.join()

    def stop(self):
        self.end()
        self.test.assertEqual(self.failures, [])


class Migrate(harness.Case):
    def create(self, node, nid, count, size=64):
        self.shoal(node, "chunk", "create", size, "--count", count, "--node", nid)
    def held(self, node, nid):
        listed = self.shoal_json(node, "chunk", "list", nid)
        return listed["chunks"]

    def test_range_there_and_back(self):
        node, (one, two) = self.cluster(2)
        self.create(node, one.nid, 1000)
        self.shoal(node, "chunk", "put", f"{one.nid}:500", "--text", "x" * 64)
        moved = self.shoal_json(node, "migrate", one.nid, "--to", two.nid, "--first",
                                f"{one.nid}:400", "--last", f"{one.nid}:599")
        self.assertEqual(moved["chunks"], 200)
        self.assertEqual(moved["payload_bytes"], 200 * 64)
        got = self.shoal(node, "chunk", "get", f"{one.nid}:500", "--raw")
        self.assertEqual(got.stdout, b"x" * 64)
        self.assertEqual(self.held(node, two.nid), 200)
        self.shoal(node, "migrate", two.nid, "--to", one.nid)
        self.assertEqual(self.held(node, two.nid), 0)
        self.assertEqual(self.held(node, one.nid), 1000)

    def test_drain_under_load_and_stop(self):
        node, peers = self.cluster(3)
        first = peers[0]
        self.create(node, first.nid, 3000)
        writer = Writer(self, node, [f"{first.nid}:{local}" for local in (1, 1500, 3000)])
        writer.start()
        self.addCleanup(writer.end)
        moved = self.shoal_json(node, "drain", first.nid)
        self.assertEqual(moved["chunks"], 3000)
        self.shoal(node, "node", "stop", first.nid)
        harness.eventually(self, "writes go on", 60,
                           lambda: min(writer.counts.values()) >= 4 or writer.failures)
        writer.stop()
        for cid, count in writer.counts.items():
            got = self.shoal(node, "chunk", "get", cid, "--raw").stdout
            self.assertEqual(int.from_bytes(got[:8], "little"), count)
        self.assertEqual(sum(self.held(node, peer.nid) for peer in peers[1:]), 3000)

    def test_two_drains_and_stops(self):
        """Two peers that are drained at once hand nothing to each other, nor does anybody else."""
        node, peers = self.cluster(4)
        for peer in peers:
            self.create(node, peer.nid, 5000)
        one, two = peers[0], peers[1]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            moved = list(pool.map(lambda peer: self.shoal_json(node, "drain", peer.nid), (one, two)))
        for done in moved:  # one may have taken some before its own drain began
            self.assertGreaterEqual(done["chunks"], 5000)
        nodes = {found["nid"]: found for found in self.shoal_json(node, "status")["nodes"]}
        self.assertEqual([nodes[peer.nid]["drained"] for peer in peers], [True, True, False, False])
        done = self.run_program("shoal", "migrate", peers[2].nid, "--to", one.nid, "--connect",
                                node.address)
        self.assertEqual(done.returncode, 1)
        self.assertIn("being drained takes none", done.problem)
        for moved in self.shoal_json(node, "balance")["migrations"]:
            self.assertNotIn(moved["to"], (one.nid, two.nid))
        self.shoal(node, "migrate", peers[2].nid)
        self.assertEqual([self.held(node, peer.nid) for peer in peers], [0, 0, 0, 20000])
        for peer in (one, two):
            self.shoal(node, "node", "stop", peer.nid)
        for peer in peers:
            for local in (1, 2500, 5000):
                self.shoal(node, "chunk", "get", f"{peer.nid}:{local}", "--raw")

    def test_undrain(self):
        node, (one, two) = self.cluster(2)
        self.create(node, one.nid, 100)
        self.shoal(node, "drain", one.nid)
        done = self.run_program("shoal", "chunk", "create", 64, "--node", one.nid, "--connect",
                                node.address)
        self.assertEqual(done.returncode, 1)
        edges = self.write("edges", "1 2\n2 3\n")
        done = self.run_program("shoal", "graph", "load", edges, "--connect", node.address)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"peer {one.nid} is being drained", done.problem)
        done = self.run_program("shoal", "drain", one.nid, "--undo", "--to", two.nid, "--connect",
                                node.address)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(self.shoal_json(node, "drain", one.nid, "--undo")["node"], one.nid)
        self.create(node, one.nid, 10)
        self.shoal(node, "migrate", two.nid, "--to", one.nid)
        self.assertEqual(self.held(node, one.nid), 110)
        said = self.shoal(node, "drain", one.nid, "--undo").stdout.decode()
        self.assertIn("may have chunks again", said)

    def test_superpeer_started_anew(self):
        registry = self.folder / "registry"
        node = self.superpeer("superpeer", "--data-dir", registry)
        address = node.address
        one, two = self.peer("one", node), self.peer("two", node)
        self.create(node, one.nid, 500)
        self.shoal(node, "migrate", one.nid, "--to", two.nid, "--last", f"{one.nid}:250")
        node.kill()
        node = self.superpeer("superpeer", "--data-dir", registry, "--listen", address)
        for local in (1, 250, 251, 500):
            self.shoal(node, "chunk", "get", f"{one.nid}:{local}", "--raw")
        self.shoal(node, "drain", one.nid)
        self.assertEqual(self.held(node, two.nid), 500)
        for local in (1, 250, 251, 500):
            self.shoal(node, "chunk", "get", f"{one.nid}:{local}", "--raw")

    def test_balance(self):
        node, peers = self.cluster(3)
        self.create(node, peers[0].nid, 60000)
        plan = self.shoal(node, "balance", "--plan").stdout.decode()
        self.assertEqual(plan.count("Would move"), 2)
        done = self.shoal_json(node, "balance")["migrations"]
        self.assertEqual(len(done), 2)
        held = [self.held(node, peer.nid) for peer in peers]
        self.assertEqual(sum(held), 60000)
        self.assertTrue(all(12000 < count < 30000 for count in held), held)

    def test_refusals(self):
        node, (one, two) = self.cluster(2)
        for words, word in (((one.nid, "--to", one.nid), "EINVAL"),
                            ((one.nid, "--to", 4000), "ENONODE"), ((4000,), "ENONODE"),
                            ((1,), "EROLE")):
            done = self.run_program("shoal", "migrate", *words, "--connect", node.address, "--json")
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(word, done.text)
        done = self.run_program("shoal", "migrate", one.nid, "--first", "x", "--connect",
                                node.address)
        self.assertEqual(done.returncode, 2)
        two.kill()
        harness.eventually(self, "two has failed", 30, lambda: any(
            found["nid"] == two.nid and found["state"] == "failed"
            for found in self.shoal_json(node, "node", "list")["nodes"]))
        self.create(node, one.nid, 10)
        done = self.run_program("shoal", "drain", one.nid, "--connect", node.address)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no other peer", done.stderr.decode())
        self.create(node, one.nid, 10)


if __name__ == "__main__":
    unittest.main()
