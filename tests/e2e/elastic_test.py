"""What peers have brought back goes on to others: to fresh ones, to one that was started again, and back again when these fail (docs/recovery.md)."""
import unittest

import harness
import recovery_test

CHUNKS = 200
MORE = 40000  # whose bytes are enough to be spread


class Elastic(recovery_test.Cluster):
    def held(self, peer):
        return self.shoal_json(self.superpeer, "chunk", "list", peer.nid)["chunks"]

    def fresh_peer(self):
        """A peer that the cluster has never had."""
        self.STORE_BYTES = [*self.STORE_BYTES, "64MiB"]
        return self.begin_peer(len(self.STORE_BYTES) - 1).wait_ready()

    def create_more(self, peer):
        self.shoal(self.superpeer, "chunk", "create", 64, "--count", MORE, "--node", peer.nid)

    def balance(self):
        """Spreads chunks evenly, also where a peer is busy at first with zones that come back."""
        harness.eventually(self, "a balance without refusals", harness.READY_MAX, lambda: self.run_program(
            "shoal", "balance", "--connect", self.superpeer.address).returncode == 0)

    def owner(self, chunk):
        return self.shoal_json(self.superpeer, "lookup", chunk)["owner"]

    def test_what_came_back_spreads(self):
        """A peer fails while counters are added to; its chunks go to a fresh peer and to its next life, fail there again, and are back at the others, each addition counted once."""
        client = self.client()
        victim = self.random.randrange(recovery_test.PEERS)
        content = self.fill(client, self.peers[victim].nid, CHUNKS)
        self.create_more(self.peers[victim])
        with self.added_to(self.peers[victim], self.peers[victim]) as sums:
            self.peers[victim].kill()
            self.check(client, content)
            fresh = self.fresh_peer()
            self.peers[victim] = again = self.begin_peer(victim, 2).wait_ready()
            self.wait_zones()
            self.balance()
            self.assertGreater(self.held(fresh), MORE // 20)
            self.assertGreater(self.held(again), MORE // 20)
            self.check(self.client(), content)
            self.wait_zones()
            fresh.kill()
            again.kill()
            self.check(self.client(), content)
            self.wait_zones()
            for counter in sums:
                self.assertNotIn(self.owner(counter), (fresh.nid, again.nid))
        self.check(self.client(), content)

    def test_a_restorer_is_drained(self):
        """A zone may also go on as a whole: the peer that has brought it back gives all of it to a fresh one while clients change it, and is stopped."""
        client = self.client()
        victim = self.peers.pop(self.random.randrange(recovery_test.PEERS))
        content = self.fill(client, victim.nid, CHUNKS)
        with self.added_to(victim, victim) as sums:
            victim.kill()
            self.check(client, content)
            fresh = self.fresh_peer()
            self.wait_zones()
            restorer = max(self.peers, key=self.held)
            were_there = [counter for counter in sums if self.owner(counter) == restorer.nid]
            self.shoal(self.superpeer, "drain", restorer.nid, "--to", fresh.nid)
            self.assertEqual(self.held(restorer), 0)
            self.assertGreater(self.held(fresh), CHUNKS // 4)
            self.assertTrue(were_there)
            self.assertEqual({self.owner(counter) for counter in were_there}, {fresh.nid})
            self.shoal(self.superpeer, "node", "stop", restorer.nid)
            self.check(self.client(), content)
        self.check(self.client(), content)


if __name__ == "__main__":
    unittest.main()
