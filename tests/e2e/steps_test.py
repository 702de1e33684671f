"""Leases are renewed whatever clients ask for: the largest requests, without pause, of several
clients at once, while leases are as short as they may be."""
import concurrent.futures
import unittest

import harness

HUGE = 64 << 20
ROUNDS = 4
CLIENTS = 3


class Steps(harness.Case):
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
        created = self.shoal_json(peer, "chunk", "create", 16, "--count", 1 << 18, "--node",
                                  peer.nid)
        self.assertEqual(len(created["cids"]), 1 << 18)

    def test_leases_stay(self):
        superpeer, peers = self.cluster(2, "--failure-ns", "1s")
        before = self.shoal_json(superpeer, "node", "list")["nodes"]

        def client(number):
            for _ in range(ROUNDS):
                self.huge_round(peers[0], number)

        with concurrent.futures.ThreadPoolExecutor(CLIENTS + 1) as pool:
            asked = [pool.submit(client, number) for number in range(CLIENTS)]
            asked.append(pool.submit(self.many_round, peers[0]))
            for one in asked:
                one.result()
        self.assertEqual(self.shoal_json(superpeer, "node", "list")["nodes"], before)
        self.assertNotIn("node failed", superpeer.log())
        for peer in peers:
            self.assertNotIn("fenced", peer.log())
            peer.stop()


if __name__ == "__main__":
    unittest.main()
