"""Changes under way while their peer is killed, and started again on its log: what was answered was done, once, and what was not, once at
most (docs/backup.md)."""
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

    def add_until(self, client, counter, end, answers):
        """Adds 1 again and again; what the counter is then."""
        while not end.is_set():
            answers.append(client.ask("add", counter, 1))

    def create_until(self, client, nid, end, answers):
        while not end.is_set():
            answers.append(client.ask("create", 8, nid))

    def judge(self, answers, last):
        """Sums rise by one with each addition, and by one more for one that may have been done; last is what there is in the end."""
        least = most = 0
        for answer in answers + [f"ok {last}"]:
            if answer.startswith("SHOAL_EFAILED"):
                continue  # not sent: the peer is known to be away
            if answer.startswith("SHOAL_ECONNLOST"):
                most += 1
                continue
            self.assertRegex(answer, "^ok ")
            least, most = least + 1, most + 1
            found = int(answer[3:])
            self.assertTrue(least <= found <= most, f"{found}: {least} to {most}")
            least = most = found

    def test_each_change_is_done_once(self):
        peer = self.begin_peer().wait_ready()
        nid, end, threads, sums, made = peer.nid, threading.Event(), [], {}, []
        for _ in range(3):
            client = harness.Client(self, [self.superpeer.address])
            counter = client.do("create", 8, nid)
            sums[counter] = []
            threads.append(threading.Thread(target=self.add_until,
                                            args=(client, counter, end, sums[counter])))
        client = harness.Client(self, [self.superpeer.address])
        threads.append(threading.Thread(target=self.create_until, args=(client, nid, end, made)))
        for thread in threads:
            thread.start()
        try:
            for _ in range(KILLS):
                time.sleep(0.3)
                peer.kill()
                peer = self.begin_peer().wait_ready()
                self.assertEqual(peer.nid, nid)
                self.assertRegex(peer.log(), r"the log is open\b.*\bcompletions=[1-9]")
            before = [len(answers) for answers in sums.values()]
            deadline = time.monotonic() + harness.READY_MAX
            while any(len(a) < n + 5 for a, n in zip(sums.values(), before)):
                self.assertLess(time.monotonic(), deadline, "adds do not go on")
                time.sleep(0.05)
        finally:
            end.set()
            for thread in threads:
                thread.join()
        reader = harness.Client(self, [self.superpeer.address])
        for counter, answers in sums.items():
            self.assertGreater(len(answers), 50)
            self.judge(answers, reader.do("add", counter, 1))
        cids = [answer for answer in made if answer.startswith("ok ")]
        self.assertEqual(len(set(cids)), len(cids))


if __name__ == "__main__":
    unittest.main()
