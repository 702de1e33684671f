"""Failures seen from outside: who hears of them, in which order, and what a stopped node may do."""
import json
import signal
import subprocess
import threading
import unittest

import harness
from superpeers_test import free_addresses


class Watch:
    """`shoal node watch --json` beside the test."""

    def __init__(self, test, addresses):
        self.rows = []
        self.process = subprocess.Popen(
            [str(harness.BIN / "shoal"), "node", "watch", "--json", "--connect", addresses],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=harness.clean_environment())
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        test.addCleanup(self.end)
        self.test = test

    def read(self):
        for line in self.process.stdout:
            self.rows.append(json.loads(line))

    def end(self):
        self.process.terminate()
        self.process.wait(harness.STOP_MAX)
        self.reader.join()
        self.process.stdout.close()

    def has(self, event, nid):
        return any(row["event"] == event and row["nid"] == nid for row in list(self.rows))

    def wait(self, event, nid):
        harness.promptly(self.test, f"{event} {nid}", lambda: self.has(event, nid))

    def history(self, nid):
        return [row["event"] for row in self.rows if row["nid"] == nid]


class Failures(harness.Case):
    def setUp(self):
        super().setUp()
        self.first = self.superpeer("superpeer", "--data-dir", self.folder / "data")

    def state(self, nid):
        for node in self.shoal_json(self.first, "node", "list")["nodes"]:
            if node["nid"] == nid:
                return node["state"]
        return None

    def test_events_in_order(self):
        peers = [self.peer(f"peer{i}", self.first) for i in range(2)]
        watch = Watch(self, self.first.address)
        watch.wait("present", peers[1].nid)
        third = self.peer("third", self.first)
        watch.wait("joined", third.nid)
        peers[0].kill()
        watch.wait("failed", peers[0].nid)
        third.stop()
        watch.wait("left", third.nid)
        # One that comes late gets what there is.
        late = Watch(self, self.first.address)
        late.wait("present", third.nid)
        fourth = self.peer("fourth", self.first)
        for one in (watch, late):
            one.wait("joined", fourth.nid)
            epochs = [row["epoch"] for row in one.rows]
            self.assertEqual(epochs, sorted(epochs))
        self.assertEqual(watch.history(peers[0].nid), ["present", "failed"])
        self.assertEqual(watch.history(peers[1].nid), ["present"])
        self.assertEqual(watch.history(third.nid), ["joined", "left"])
        self.assertEqual(late.history(third.nid), ["present"])

    def test_watch_goes_on_after_all_was_lost(self):
        """A registry that is begun anew has lower epochs: who watches is told all the same."""
        address = free_addresses(1)[0]

        def start(folder):
            return harness.Node(self, folder, "--roles", "superpeer", "--listen", address,
                                "--data-dir", self.folder / folder).wait_ready()
        superpeer = start("before")
        peers = [self.peer(f"old{i}", superpeer) for i in range(3)]
        watch = Watch(self, address)
        watch.wait("present", peers[2].nid)
        for node in [*peers, superpeer]:
            node.process.kill()
            node.wait_end()
        superpeer = start("after")
        fresh = self.peer("fresh", superpeer)
        self.assertIn(fresh.nid, [peer.nid for peer in peers])
        watch.wait("joined", fresh.nid)
        watch.wait("left", peers[2].nid)

    def test_fenced_peer_is_seen(self):
        """A peer that no superpeer renews the lease of says so, once, in status and in its log."""
        peer = self.peer("peer", self.first)

        def row():
            rows = self.shoal_json(peer, "status")["nodes"]
            return next(row for row in rows if row["nid"] == peer.nid)
        self.assertEqual((row()["fenced"], row()["fences"]), (False, 0))
        self.first.process.send_signal(signal.SIGSTOP)
        # Each look at the status waits for the stopped superpeer.
        harness.promptly(self, "it is fenced", lambda: "fenced: the lease has run out" in peer.log())
        self.assertTrue(row()["fenced"])
        self.assertIn("fenced", self.shoal(peer, "status").text)
        self.first.process.send_signal(signal.SIGCONT)
        harness.promptly(self, "it serves", lambda: not row()["fenced"])
        self.assertEqual(row()["fences"], 1)
        self.assertEqual(peer.log().count("fenced: the lease has run out"), 1)
        self.assertEqual(peer.log().count("serves again"), 1)

    def test_other_settings_are_refused(self):
        """Who would go by other times than the cluster ends, and its log says why."""
        superpeer = harness.Node(self, "alone", "--roles", "superpeer").wait_ready()
        peer = harness.Node(self, "misfit", "--roles", "peer", "--superpeers", superpeer.address,
                            "--failure-ns", "3s")
        self.assertNotEqual(peer.wait_end(), 0, peer.log())
        self.assertIn("the node has heartbeat_ns 100ms and failure_ns 3s, superpeer 1 has 100ms "
                      "and 2s", peer.log())
        self.assertIn("SHOAL_ESETTING", peer.log())

    def test_stopped_peer_joins_again(self):
        peer = self.peer("peer", self.first, "--data-dir", self.folder / "peer", "--replicas", "1",
                         "--replicas-at", "self", "--store-bytes-max", "64MiB")
        watch = Watch(self, self.first.address)
        cid = self.shoal(self.first, "chunk", "create", "--text", "kept").text.split()[-1]
        watch.wait("present", peer.nid)
        peer.process.send_signal(signal.SIGSTOP)
        self.addCleanup(peer.process.send_signal, signal.SIGCONT)
        watch.wait("failed", peer.nid)
        self.assertEqual(self.state(peer.nid), "failed")
        peer.process.send_signal(signal.SIGCONT)
        watch.wait("joined", peer.nid)
        self.assertEqual(self.shoal(self.first, "chunk", "get", cid, "--raw").stdout, b"kept")
        self.assertEqual(watch.history(peer.nid), ["present", "failed", "joined"])


if __name__ == "__main__":
    unittest.main()
