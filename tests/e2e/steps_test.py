"""Leases are renewed whatever clients ask for: the largest requests, without pause, of several
clients at once, and beside them all that a node does in many steps (multi forms, dumps, migrations,
graphs), while leases are as short as they may be."""
import concurrent.futures
import os
import unittest

import harness

WORDNET = harness.DATA / "wordnet"
HUGE = 64 << 20
MANY = 1 << 18
ROUNDS = 4
CLIENTS = 3


class Steps(harness.Case):
    def setUp(self):
        """Leases of a second; longer ones where other programs keep the cores busy, which make each step
        of ours take longer too."""
        super().setUp()
        slower = max(1, os.getloadavg()[0] / os.cpu_count() / 2)
        self.ENVIRONMENT = {"SHOAL_FAILURE_NS": f"{int(1000 * slower)}ms",
                            "SHOAL_PEER_SILENCE_NS": f"{int(3000 * slower)}ms"}

    def huge_round(self, peer, number):
        """What takes longest of one chunk: creates, puts, gets and resizes of 64 MiB."""
        first, second = bytes([number + 1]) * HUGE, bytes([number + 101]) * HUGE
        created = self.shoal_json(peer, "chunk", "create", HUGE, "--node", peer.nid)
        cid = created["cids"][0]
        self.shoal(peer, "chunk", "put", cid, "-", stdin=first)
        self.assertEqual(self.shoal(peer, "chunk", "get", cid, "--raw").stdout, first)
        self.shoal(peer, "chunk", "put", cid, "-", stdin=second)
        self.shoal(peer, "chunk", "resize", cid, HUGE // 2)
        self.assertEqual(self.shoal(peer, "chunk", "get", cid, "--raw").stdout,
                         second[:HUGE // 2])
        self.shoal(peer, "chunk", "remove", cid)

    def many_round(self, peer):
        """Many chunks with one request."""
        created = self.shoal_json(peer, "chunk", "create", 16, "--count", MANY, "--node", peer.nid)
        self.assertEqual(len(created["cids"]), MANY)
        return created["cids"][0], created["cids"][-1]

    def multi_round(self, peer, client):
        """Small and large chunks, many of them with one call of each multi form."""
        for count, size in ((MANY, 64), (64, 1 << 20)):
            self.assertEqual(client.do("multi", count, size, peer.nid), str(count))

    def migration_round(self, one, two, first, last):
        """Many chunks, and a huge one, there and back."""
        huge = self.shoal_json(one, "chunk", "create", HUGE, "--node", one.nid)["cids"][0]
        for source, target in ((one, two), (two, one)):
            for ends, count in (((first, last), MANY), ((huge, huge), 1)):
                moved = self.shoal_json(one, "migrate", source.nid, "--to", target.nid, "--first",
                                        ends[0], "--last", ends[1])
                self.assertGreaterEqual(moved["chunks"], count)
        self.shoal(one, "chunk", "remove", huge)

    def graph_round(self, peer):
        """A graph on all peers, and what the other peers have to find in it."""
        self.shoal(peer, "graph", "load", WORDNET / "wordnet.e.tsv.zst", "--vertices",
                   WORDNET / "wordnet.v.tsv.zst", "--types")
        for flags in ((), ("--undirected",)):
            self.assertGreater(self.shoal_json(peer, "graph", "bfs", 46303, *flags)["reached"], 1)

    def many_steps(self, one, two, client):
        """One after the other: all that a peer does in many steps."""
        first, last = self.many_round(one)
        self.multi_round(one, client)
        self.shoal(one, "store", "dump", one.nid, "kept")
        self.migration_round(one, two, first, last)
        self.graph_round(one)

    def test_leases_stay(self):
        superpeer = self.superpeer()
        one, two = (self.peer(name, superpeer, "--data-dir", self.folder / f"data-{name}")
                    for name in ("one", "two"))
        before = self.shoal_json(superpeer, "node", "list")["nodes"]
        multi_client = harness.Client(self, [superpeer.address], timeout_ns=120_000_000_000)

        def client(number):
            for _ in range(ROUNDS):
                self.huge_round(one, number)

        with concurrent.futures.ThreadPoolExecutor(CLIENTS + 1) as pool:
            asked = [pool.submit(client, number) for number in range(CLIENTS)]
            asked.append(pool.submit(self.many_steps, one, two, multi_client))
            for task in asked:
                task.result()
        self.assertEqual(self.shoal_json(superpeer, "node", "list")["nodes"], before)
        self.assertNotIn("node failed", superpeer.log())
        for peer in (one, two):
            self.assertNotIn("fenced", peer.log())
            peer.stop()


if __name__ == "__main__":
    unittest.main()
