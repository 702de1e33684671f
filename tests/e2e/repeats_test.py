"""Calls under way while their peer is killed, and started again on its log: they wait for its next life, which knows what was done, so that each is done
once (docs/backup.md)."""
import threading
import time
import unittest

import harness

KILLS = 3
CHUNKS = 20  # of a call for many
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

    def put_rounds(self, end, rounds, client, cids):
        """Puts the number of each round into all chunks with one call, and reads them with another; an operation that may have been done is
        repeated, as nobody else writes to these chunks."""
        while not end.is_set():
            left, text = list(cids), str(len(rounds)).zfill(6)
            while left:
                results = client.ask("mput", text, *left).split()
                self.assertEqual(results[0], "each")
                self.assertLessEqual(set(results[1:]), {"SHOAL_OK", "SHOAL_ECONNLOST"})
                left = [cid for cid, result in zip(left, results[1:]) if result != "SHOAL_OK"]
            rounds.append(client.ask("mget", *cids))

    def create_rounds(self, end, made, client, nid):
        """Creates many with one call, again and again; where it is not known whether they were made, nobody knows them."""
        while not end.is_set():
            answer = client.ask("creates", CHUNKS, 8, nid)
            self.assertRegex(answer, "^(ok|SHOAL_ECONNLOST)")
            made += [answer] if answer.startswith("ok") else []

    def lock_rounds(self, end, locked, client, cid):
        """Locks and unlocks a chunk that nobody else wants. A lock falls with its node."""
        while not end.is_set():
            self.assertEqual(client.ask("lock", cid, 7), "ok")
            self.assertRegex(client.ask("extend", cid, 7), "^(ok|SHOAL_ENOLOCK)")
            self.assertRegex(client.ask("unlock", cid, 7), "^(ok|SHOAL_ENOLOCK)")
            locked.append("ok")

    def run_kept(self, problems, run, *arguments):
        try:
            run(*arguments)
        except AssertionError as problem:
            problems.append(str(problem))

    def test_calls_for_many_chunks_and_locks_go_on(self):
        """No call fails that is not in doubt, and what is read is what was put last."""
        peer = self.begin_peer().wait_ready()
        nid, end, threads, problems = peer.nid, threading.Event(), [], []
        rounds, made, locked = [], [], []
        clients = [harness.Client(self, [self.superpeer.address]) for _ in range(3)]
        cids = clients[0].do("creates", CHUNKS, 6, nid).split()
        counter = clients[2].do("create", 8, nid)
        self.assertEqual(clients[2].do("add", counter, 1), "1")  # a result that each life finds
        for run, answers, client, what in ((self.put_rounds, rounds, clients[0], cids),
                                           (self.create_rounds, made, clients[1], nid),
                                           (self.lock_rounds, locked, clients[2], counter)):
            threads.append(threading.Thread(target=self.run_kept,
                                            args=(problems, run, end, answers, client, what)))
        try:
            self.kill_often(peer, threads, (rounds, made, locked))
        finally:
            end.set()
            for thread in threads:
                thread.join()
        self.assertEqual(problems, [])
        for number, answer in enumerate(rounds):
            self.assertEqual(answer.split(), ["each"] + [f"SHOAL_OK:{number:06}"] * CHUNKS)
        new = [cid for answer in made for cid in answer.split()[1:]]
        self.assertEqual(len(set(new)), CHUNKS * len(made))
        reader = harness.Client(self, [self.superpeer.address])
        for answer in made:
            self.assertEqual(reader.ask("mresize", 3, *answer.split()[1:]).split()[1:],
                             ["SHOAL_OK"] * CHUNKS)

    def test_calls_wait_for_a_peer_that_has_failed(self):
        """Calls that begin while the peer is failed end when it is back. Its locks have fallen, and their holders are told so."""
        peer = self.begin_peer().wait_ready()
        clients = [harness.Client(self, [self.superpeer.address]) for _ in range(8)]
        cids = clients[0].do("creates", CHUNKS, 6, peer.nid).split()
        gone, cids = cids[0], cids[1:]
        for owner in (1, 2):
            clients[owner].do("lock", cids[owner], owner)
        peer.kill()
        for client in clients:
            harness.eventually(self, "the peer has failed", harness.READY_MAX,
                               lambda: client.states()[peer.nid] == "failed")
        asked = (("mput", "there!", *cids[:5]), ("unlock", cids[1], 1), ("extend", cids[2], 2),
                 ("lock", cids[3], 3), ("creates", 2, 8, peer.nid), ("mget", *cids[5:]),
                 ("mresize", 3, *cids[5:]), ("mremove", gone))
        expected = ("^each( SHOAL_OK){5}$", "^SHOAL_ENOLOCK", "^SHOAL_ENOLOCK", "^ok$", "^ok( [0-9:]+){2}$",
                    "^each( SHOAL_OK:.*)+$", "^each( SHOAL_OK)+$", "^each SHOAL_OK$")
        answers = [[] for _ in asked]
        threads = [threading.Thread(target=lambda i=i: answers[i].append(clients[i].ask(*asked[i])))
                   for i in range(len(asked))]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        self.assertEqual(answers, [[] for _ in asked])  # all wait
        self.begin_peer().wait_ready()
        for thread in threads:
            thread.join()
        for words, pattern, answer in zip(asked, expected, answers):
            self.assertRegex(answer[0], pattern, words)
        self.assertEqual(clients[0].ask("mget", *cids[:5]), "each" + 5 * " SHOAL_OK:there!")
        self.assertRegex(clients[0].ask("lock", cids[3], 4), "^SHOAL_EBUSY")
        self.assertEqual(clients[0].ask("lock", cids[1], 4), "ok")

    def test_a_call_waits_no_longer_than_its_timeout(self):
        peer = self.begin_peer().wait_ready()
        client = harness.Client(self, [self.superpeer.address], timeout_ns=500_000_000)
        cid = client.do("create", 8, peer.nid)
        peer.kill()
        fails = "^(each )?SHOAL_(EFAILED|ECONNLOST|EUNREACHABLE|ETIMEOUT)"  # whichever its last attempt ended with
        for words in (("get", cid), ("add", cid, 1), ("create", 8, peer.nid)):
            self.assertRegex(client.ask(*words), fails, words)
        harness.eventually(self, "the peer has failed", harness.READY_MAX,
                           lambda: client.states()[peer.nid] == "failed")
        for words in (("get", cid), ("lock", cid, 1), ("unlock", cid, 1), ("mget", cid), ("mput", "later", cid),
                      ("creates", 3, 8, peer.nid)):
            started = time.monotonic()
            self.assertRegex(client.ask(*words), fails, words)
            self.assertGreater(time.monotonic() - started, 0.4, words)
            self.assertLess(time.monotonic() - started, 5, words)
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
        for words in (("get", cid), ("lock", cid, 1), ("mget", cid), ("creates", 3, 8, peer.nid)):
            self.assertRegex(client.ask(*words), "^(each )?SHOAL_EFAILED")


if __name__ == "__main__":
    unittest.main()
