"""Calls under way while their peer is killed, and started again on its log: they wait for its next life, which knows what was done, so that each is done
once (docs/backup.md)."""
import threading
import time
import unittest

import harness

KILLS = 3
LONG = ("--failure-ns", "60s")  # nobody counts the peer as failed meanwhile


class Repeats(harness.Case):
    """A superpeer with a folder, and a peer with a log that is killed again and again."""

    def setUp(self):
        super().setUp()
        self.superpeer = harness.Node(self, "superpeer", "--roles", "superpeer", "--data-dir",
                                      self.folder / "superpeer", *LONG).wait_ready()
        self.lives = 0

    def begin_peer(self):
        self.lives += 1
        return harness.Node(self, f"peer-{self.lives}", "--superpeers", self.superpeer.address,
                            "--data-dir", self.folder / "peer", "--replicas", "1",
                            "--store-bytes-max", "64MiB", *LONG)

    def ask_until(self, end, answers, client, *words):
        """Asks the same again and again."""
        while not end.is_set():
            answers.append(client.ask(*words))

    def begin(self, threads, end, answers, client, *words):
        threads.append(threading.Thread(target=self.ask_until, args=(end, answers, client, *words)))

    def kill_often(self, peer, threads, all_answers):
        """Kills the peer, and starts it again, while the threads ask; until each has got some answers more from its last life."""
        nid = peer.nid
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            time.sleep(0.3)
            peer.kill()
            peer = self.begin_peer().wait_ready()
            self.assertEqual(peer.nid, nid)
            self.assertRegex(peer.log(), r"the log is open\b.*\bcompletions=[1-9]")
        before = [len(answers) for answers in all_answers]
        harness.eventually(self, "calls that go on", harness.READY_MAX,
                           lambda: all(len(a) >= n + 5 for a, n in zip(all_answers, before)))

    def test_each_change_is_done_once(self):
        """Each call waits for the peer's next life, which knows what came of it: no call fails, and each addition counts once."""
        peer = self.begin_peer().wait_ready()
        nid, end, threads, sums, made, got, put = peer.nid, threading.Event(), [], {}, [], [], []
        for _ in range(3):
            client = harness.Client(self, [self.superpeer.address])
            counter = client.do("create", 8, nid)
            sums[counter] = []
            self.begin(threads, end, sums[counter], client, "add", counter, 1)
        client = harness.Client(self, [self.superpeer.address])
        text, other = client.do("create", 5, nid), client.do("create", 5, nid)
        client.do("put", text, "there")
        self.begin(threads, end, made, client, "create", 8, nid)
        self.begin(threads, end, got, harness.Client(self, [self.superpeer.address]), "get", text)
        self.begin(threads, end, put, harness.Client(self, [self.superpeer.address]), "put", other, "again")
        try:
            self.kill_often(peer, threads, [*sums.values(), made, got, put])
        finally:
            end.set()
            for thread in threads:
                thread.join()
        reader = harness.Client(self, [self.superpeer.address])
        for counter, answers in sums.items():
            self.assertGreater(len(answers), 50)
            self.assertEqual(answers, [f"ok {number}" for number in range(1, len(answers) + 1)])
            self.assertEqual(reader.do("add", counter, 0), str(len(answers)))
        self.assertEqual(set(got), {"ok there"})
        self.assertEqual(set(put), {"ok"})
        self.assertTrue(all(answer.startswith("ok ") for answer in made), made)
        self.assertEqual(len(set(made)), len(made))

    def test_a_call_waits_no_longer_than_its_timeout(self):
        peer = self.begin_peer().wait_ready()
        client = harness.Client(self, [self.superpeer.address], timeout_ns=500_000_000)
        cid = client.do("create", 8, peer.nid)
        peer.kill()
        fails = "^SHOAL_(EFAILED|ECONNLOST|EUNREACHABLE|ETIMEOUT)"  # whichever its last attempt ended with
        for words in (("get", cid), ("add", cid, 1), ("create", 8, peer.nid)):
            self.assertRegex(client.ask(*words), fails, words)
        started = time.monotonic()
        self.assertRegex(client.ask("get", cid), fails)
        self.assertGreater(time.monotonic() - started, 0.4)
        self.begin_peer().wait_ready()
        harness.eventually(self, "the chunk is there again", harness.READY_MAX,
                           lambda: client.ask("get", cid).startswith("ok"))

    def test_nobody_waits_for_a_peer_without_a_log(self):
        peer = harness.Node(self, "plain", "--superpeers", self.superpeer.address, *LONG).wait_ready()
        client = harness.Client(self, [self.superpeer.address], timeout_ns=3_600_000_000_000)
        cid = client.do("create", 8, peer.nid)
        peer.kill()
        harness.eventually(self, "the peer has failed", harness.READY_MAX,
                           lambda: client.states()[peer.nid] == "failed")
        self.assertRegex(client.ask("get", cid), "^SHOAL_EFAILED")


if __name__ == "__main__":
    unittest.main()
