"""`shoal metadata`: what superpeers say of themselves, while they come, go and move chunks."""
import os
import pathlib
import signal
import subprocess
import unittest

import harness


class Metadata(harness.Case):
    def superpeer_at(self, number, *others):
        known = ("--superpeers", ",".join(others)) if others else ()
        return self.superpeer(f"superpeer{number}", "--data-dir", self.folder / f"data{number}",
                              "--failure-ns", "1s", *known)

    def answers(self, node, *words):
        """What superpeers say, by their IDs."""
        return {row["nid"]: row
                for row in self.shoal_json(node, "metadata", *words)["superpeers"]}

    def settled(self, node, nids):
        """Waits until those lead, vote for and hold everything, and no other; what they say."""
        def found():
            rows = self.answers(node)
            good = [rows.get(nid, {}) for nid in nids]
            if (sum(row.get("role") == "leader" for row in good) == 1 and
                    all(row.get("voters") == nids and row["current"] for row in good) and
                    all(shard["replicas"] == nids for row in good for shard in row["shards"]) and
                    sum(row["shards_owned"] for row in good) == 64):
                return rows
            return None

        return harness.eventually(self, f"superpeers {nids} have settled", 60, found)

    def test_shared(self):
        first = self.superpeer_at(1)
        peers = [self.peer(f"peer{i}", first, "--failure-ns", "1s") for i in range(2)]
        alone = self.settled(first, [1])[1]
        self.assertEqual((alone["registry"], alone["leader"], alone["recovering"]), ("raft", 1, False))
        self.assertEqual((alone["peers_up"], alone["ranges"], alone["moved_ranges"]), (2, 0, 0))
        others = [self.superpeer_at(number, first.address) for number in (2, 3)]
        rows = self.settled(first, [1, 2, 3])
        self.assertEqual(len({row["term"] for row in rows.values()}), 1)
        self.assertEqual(len({row["leader"] for row in rows.values()}), 1)
        for row in rows.values():
            self.assertEqual([shard["shard"] for shard in row["shards"]], list(range(64)))
            self.assertTrue(all(shard["replicas"] == [1, 2, 3] for shard in row["shards"]))
            self.assertGreater(row["memory_bytes"], row["registry_bytes"])
            self.assertGreater(row["resident_bytes"], row["memory_bytes"])
        self.assertEqual(list(self.answers(others[0], 2)), [2])
        text = self.shoal(first, "metadata").text
        self.assertRegex(text, r"(?m)^ +[123] +up +leader +\d+")
        self.assertRegex(text, r"(?m)^\d+-63 +[123] +1 2 3$")
        self.assertRegex(self.shoal(first, "metadata", 3).text, r"(?m)^voters +1 2 3$")
        others[1].kill()
        # It votes still, but neither owns nor holds anything.
        harness.promptly(self, "the others own its shards", lambda: all(
            shard["owner"] in (1, 2) and shard["replicas"] == [1, 2]
            for shard in self.answers(first)[1]["shards"]))
        gone = self.answers(first)[3]
        self.assertEqual(gone["state"], "failed")
        self.assertIn("error", gone)
        self.refused("shoal", "metadata", 3, "--connect", first.address,
                     says="node 3: .*declared it failed", status=harness.NO_CLUSTER)
        self.refused("shoal", "metadata", peers[0].nid, "--connect", first.address, says="role")
        self.refused("shoal", "metadata", 9, "--connect", first.address, says="no such node")

    def state_of(self, node, nid):
        return {row["nid"]: row["state"]
                for row in self.shoal_json(node, "node", "list")["nodes"]}.get(nid)

    def asked_while_stopped(self, first, stopped):
        """What `shoal metadata` of a stopped superpeer said that went on while it was asked."""
        stopped.process.send_signal(signal.SIGSTOP)
        harness.promptly(self, "it has failed",
                         lambda: self.state_of(first, stopped.nid) == "failed")
        asking = subprocess.Popen([str(harness.BIN / "shoal"), "metadata", str(stopped.nid),
                                   "--connect", first.address], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env=harness.clean_environment())
        try:
            # With two connections it has looked at the nodes, and asks.
            harness.eventually(self, "it asks", 60, lambda: asking.poll() is not None or sum(
                "socket" in os.readlink(link)
                for link in pathlib.Path(f"/proc/{asking.pid}/fd").glob("*")) >= 2)
            stopped.process.send_signal(signal.SIGCONT)
            return asking.communicate(timeout=60)[0].decode()
        finally:
            stopped.process.send_signal(signal.SIGCONT)
            asking.kill()
            asking.wait()

    def test_failed_but_alive(self):
        """One that was declared failed, and lives, is asked all the same."""
        first = self.superpeer_at(1)
        others = [self.superpeer_at(number, first.address) for number in (2, 3)]
        self.settled(first, [1, 2, 3])
        # It may be back before it is asked: then it is asked as ever.
        harness.eventually(self, "a failed one answers", 120, lambda:
                           "declared failed by the superpeers, but it answers" in
                           self.asked_while_stopped(first, others[1]))

    def moved(self, node):
        """How many ranges have moved, as far as any superpeer says."""
        return max(row["moved_ranges"] for row in self.answers(node).values())

    def test_moved_ranges(self):
        for shared in (True, False):
            first = self.superpeer_at(1) if shared else self.superpeer("alone")
            times = ("--failure-ns", "1s") if shared else ()
            one, two = [self.peer(f"peer{shared}{i}", first, *times) for i in range(2)]
            row = self.answers(first)[1]
            self.assertEqual((row["registry"], row["role"]),
                             ("raft" if shared else "memory", "leader"))
            self.assertEqual(row["shards_owned"], 64)
            self.shoal(one, "chunk", "create", 8, "--count", 100, "--node", one.nid)
            self.assertEqual(self.moved(first), 0)
            for turn, local in enumerate((10, 30, 50), start=1):
                self.shoal(one, "migrate", one.nid, "--to", two.nid, "--first",
                           f"{one.nid}:{local}", "--last", f"{one.nid}:{local + 5}")
                self.assertEqual(self.moved(first), turn)
            self.shoal(one, "migrate", two.nid, "--to", one.nid)
            self.assertEqual(self.moved(first), 0)


if __name__ == "__main__":
    unittest.main()
