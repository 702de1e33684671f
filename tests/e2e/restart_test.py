"""Peers that are stopped in order, to be back soon: nobody makes up for them meanwhile, and they go on (docs/recovery.md)."""
import threading
import unittest

import harness
import recovery_test

PEERS = recovery_test.PEERS
SIZE = 4000


class Restart(recovery_test.Cluster):
    def stop(self, i, within="5min"):
        self.shoal(self.superpeer, "node", "stop", self.peers[i].nid, "--back-within", within)
        self.assertEqual(self.peers[i].wait_end(), 0)

    def state(self, nid):
        nodes = self.shoal_json(self.superpeer, "node", "list")["nodes"]
        return next(node["state"] for node in nodes if node["nid"] == nid)

    def copied(self):
        """Bytes that peers have copied to new backups."""
        return sum(self.log_value(peer, "own_copied_bytes") for peer in self.peers if peer.process.poll() is None)

    def log_value(self, peer, name):
        return self.shoal_json(peer, "log", "info", peer.nid)["metrics"][name]

    def test_replicas_go_on(self):
        """What others wrote while it was away is all that it gets; then it is worth as much as any backup."""
        client = self.client()
        i = self.random.randrange(PEERS)
        content = {}
        for peer in self.peers:
            if peer is not self.peers[i]:
                content.update({client.do("create", SIZE, peer.nid): None for _ in range(60)})
        for cid in content:
            content[cid] = f"{cid}-".ljust(SIZE, ".")
            client.do("put", cid, content[cid])
        self.wait_zones()
        before = self.copied()
        nid = self.peers[i].nid
        self.stop(i)
        self.assertEqual(self.state(nid), "away")
        for cid in list(content)[::7]:
            content[cid] = content[cid][::-1]
            client.do("put", cid, content[cid])
        self.peers[i] = self.begin_peer(i, 2).wait_ready()
        self.assertEqual(self.peers[i].nid, nid)
        self.assertEqual(self.state(nid), "up")
        self.wait_zones()
        self.assertLess(self.copied() - before, 60 * SIZE, "bytes copied: less than one peer has")
        self.check(client, content)
        self.peers[i - 1].kill()
        self.check(self.client(), content)
        self.wait_zones()
        self.check(self.client(), content)

    def test_one_after_the_other(self):
        """A rolling restart, under load: each addition counts once, and none fails."""
        with self.added_to(*self.peers) as sums:
            for i in range(PEERS):
                self.stop(i)
                self.calls_go_on(sums)
                self.peers[i] = self.begin_peer(i, 2).wait_ready()
                self.wait_zones()

    def test_not_back_in_time(self):
        """It counts as failed then, and its replicas are made up for."""
        client = self.client()
        content = {}
        for peer in self.peers[1:]:
            content.update(self.fill(client, peer.nid, 10))
        nid = self.peers[0].nid
        self.stop(0, "1s")
        harness.eventually(self, "it has failed", harness.READY_MAX, lambda: self.state(nid) == "failed")
        del self.peers[0]
        self.wait_zones()
        self.check(self.client(), content)

    def test_wrong_times(self):
        for text in ("0", "10ms", "25h", "soon"):
            self.refused("shoal", "node", "stop", self.peers[0].nid, "--back-within", text, "--connect",
                         self.superpeer.address, says="--back-within: .* is not a time|--back-within is .* at (least|most)", status=2)
        self.assertEqual(self.state(self.peers[0].nid), "up")
        self.refused("shoal", "node", "stop", 1, "--back-within", "1min", "--connect", self.superpeer.address,
                     says="only peers are waited for")
        self.refused("shoal", "node", "stop", self.peers[0].nid, "--back-within", "5", "--dir", self.folder / "none",
                     says="is not a time", status=2)
        self.refused("shoal", "node", "lost", 65535, "--connect", self.superpeer.address, says="ENONODE|no such node|not known")


class Alone(harness.Case):
    def test_calls_wait(self):
        """A peer that keeps its chunks in its own log is waited for, also where the signal that ends it says so by its option."""
        superpeer = harness.Node(self, "superpeer", "--roles", "superpeer", "--data-dir", self.folder / "superpeer").wait_ready()

        def begin(life):
            return harness.Node(self, f"peer-{life}", "--superpeers", superpeer.address, "--data-dir", self.folder / "peer",
                                "--store-bytes-max", "64MiB", "--replicas", 1, "--replicas-at", "self",
                                "--back-within-ns", "5min").wait_ready()
        peer = begin(1)
        client = harness.Client(self, [superpeer.address])
        cid = client.do("create", 5, peer.nid)
        client.do("put", cid, "there")
        peer.stop()
        node = next(node for node in self.shoal_json(superpeer, "node", "list")["nodes"] if node["nid"] == peer.nid)
        self.assertEqual((node["state"], node["back_ns"]), ("away", 300 * 10**9))
        self.refused("shoal", "node", "forget", peer.nid, "--connect", superpeer.address, says="is away")
        self.refused("shoal", "backup", "save", self.folder / "copy", "--connect", superpeer.address, says="its chunks would be missing")
        answers = []
        thread = threading.Thread(target=lambda: answers.append(client.ask("get", cid)))
        thread.start()
        begin(2)
        thread.join()
        self.assertEqual(answers, ["ok there"])


if __name__ == "__main__":
    unittest.main()
