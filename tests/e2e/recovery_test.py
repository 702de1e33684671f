"""Peers with replicas at others are killed: their chunks are back at these, while calls wait, and each change is done once (docs/recovery.md)."""
import contextlib
import json
import random
import re
import threading
import time
import unittest

import graph_moves_test
import graph_test
import harness

PEERS = 4
COUNTERS = 3
CHUNKS = 60
PATH = 20000


class Cluster(harness.Case):
    """A superpeer and some peers that keep each other's chunks in their logs."""

    STORE_BYTES = ["64MiB"] * PEERS
    LATE = 0  # of these, the last ones, that are started by the test
    # Patient, but a node that is started again with its superpeers waits until its former life's lease is over.
    ENVIRONMENT = {**graph_test.PATIENT, "SHOAL_FAILURE_NS": "10s"}

    def setUp(self):
        super().setUp()
        self.random = random.Random(harness.seed())
        self.zone_bytes = "2MiB"
        self.superpeer = harness.Node(self, "superpeer", "--roles", "superpeer", "--data-dir",
                                      self.folder / "superpeer").wait_ready()
        self.peers = [self.begin_peer(i) for i in range(len(self.STORE_BYTES) - self.LATE)]
        for peer in self.peers:
            peer.wait_ready()
        self.wait_zones()

    def begin_peer(self, i, life=1):
        return harness.Node(self, f"peer-{i}-{life}", "--superpeers", self.superpeer.address, "--data-dir",
                            self.folder / f"peer-{i}", "--store-bytes-max", self.STORE_BYTES[i], "--chunk-bytes-max", "1MiB",
                            "--zone-bytes", self.zone_bytes, "--log-segment-bytes", "256KiB", "--replicas-at", "peers",
                            "--replicas", 2)

    def zones(self):
        return self.shoal_json(self.superpeer, "status")["zones"]

    def wait_zones(self):
        """Waits until zones are there, and all have all backups."""
        harness.eventually(self, "all zones have all backups", harness.READY_MAX,
                           lambda: self.zones()["all"] >= len(self.peers) and not self.zones()["under_replicated"])

    def client(self, **more):
        return harness.Client(self, [self.superpeer.address], **more)

    def fill(self, client, nid, count=CHUNKS):
        """Chunks of all sizes at a peer, with what they have."""
        content = {}
        for number in range(count):
            text = f"chunk-{nid}-{number}"
            cid = client.do("create", len(text), nid)
            client.do("put", cid, text)
            content[cid] = text
        return content

    def check(self, client, content):
        for cid, text in content.items():
            self.assertEqual(client.ask("get", cid), f"ok {text}")


    @staticmethod
    def add_until(end, answers, client, counter):
        while not end.is_set():
            answers.append(client.ask("add", counter, 1))

    @contextlib.contextmanager
    def added_to(self, *peers):
        """Meanwhile a client for each of the peers adds to a counter there; after that none may have failed, and each has counted once. Yields
        the answers so far, by counter."""
        end, threads, sums = threading.Event(), [], {}
        for peer in peers:
            client = self.client()
            counter = client.do("create", 8, peer.nid)
            sums[counter] = answers = []
            threads.append(threading.Thread(target=self.add_until, args=(end, answers, client, counter)))
        for thread in threads:
            thread.start()
        try:
            yield sums
        finally:
            end.set()
            for thread in threads:
                thread.join()
        reader = self.client()
        for counter, answers in sums.items():
            self.assertEqual(answers, [f"ok {number}" for number in range(1, len(answers) + 1)])
            self.assertEqual(reader.do("add", counter, 0), str(len(answers)))

    def calls_go_on(self, sums):
        before = [len(answers) for answers in sums.values()]
        harness.eventually(self, "calls that go on", harness.READY_MAX,
                           lambda: all(len(a) >= n + 20 for a, n in zip(sums.values(), before)))


class Recovery(Cluster):
    def test_a_peer_is_killed(self):
        """All that it had is back at others, and can be read and changed; what was removed stays removed."""
        client = self.client()
        victim = self.peers.pop(self.random.randrange(PEERS))
        content = self.fill(client, victim.nid)
        others = {nid: self.fill(client, nid, 5) for nid in (peer.nid for peer in self.peers)}
        removed = [cid for cid in content if self.random.random() < 0.2]
        for cid in removed:
            client.do("remove", cid)
            del content[cid]
        victim.kill()
        begun = time.monotonic()
        self.check(client, content)
        print(f"back after {time.monotonic() - begun:.2f} s")
        for cid in removed:
            self.assertTrue(client.ask("get", cid).startswith("SHOAL_ENOCHUNK"), cid)
        for cid in content:
            content[cid] = content[cid][::-1]
            client.do("put", cid, content[cid])
        self.check(self.client(), content)
        for some in others.values():
            self.check(client, some)
        self.wait_zones()
        self.check(self.client(), content)

    def test_calls_wait(self):
        """Additions go on while one peer after the other is killed, and started again: none fails, and each counts once."""
        with self.added_to(*self.peers) as sums:
            for round_ in range(2, 4):
                i = self.random.randrange(PEERS)
                time.sleep(0.3)
                self.peers[i].kill()
                self.calls_go_on(sums)
                self.peers[i] = self.begin_peer(i, round_).wait_ready()
                self.wait_zones()

    def test_all_are_killed(self):
        """All nodes lose their power, as far as processes can: what was acknowledged as durable is there when they are started again."""
        client = self.client()
        content = {}
        for peer in self.peers:
            content.update(self.fill(client, peer.nid, 10))
        client.do("level", "durable")
        for cid, text in content.items():
            content[cid] = text[::-1]
            client.do("put", cid, content[cid])
        nids = [peer.nid for peer in self.peers]
        self.restart_all(2)
        self.assertEqual([peer.nid for peer in self.peers], nids)
        begun = time.monotonic()
        self.check(self.client(), content)
        print(f"all back after {time.monotonic() - begun:.2f} s")
        self.wait_zones()
        self.check(self.client(), content)

    def restart_all(self, life):
        for node in (*self.peers, self.superpeer):
            node.kill()
        self.superpeer = harness.Node(self, f"superpeer-{life}", "--roles", "superpeer", "--data-dir",
                                      self.folder / "superpeer").wait_ready()
        self.peers = [self.begin_peer(i, life) for i in range(PEERS)]
        for peer in self.peers:
            peer.wait_ready()

    def test_a_graph_is_back(self):
        """A graph that is loaded answers as its publisher says when one of its peers has been killed, and when all were."""
        graph = graph_moves_test.Moves("is_whole")
        graph.shoal, graph.shoal_json, graph.run_program = self.shoal, self.shoal_json, self.run_program
        graph.load(self.superpeer)
        graph.is_whole(self.superpeer)
        victim = self.random.randrange(PEERS)
        self.peers[victim].kill()
        graph.is_whole(self.superpeer)
        self.peers[victim] = self.begin_peer(victim, 2).wait_ready()
        self.wait_zones()
        self.restart_all(3)
        graph.is_whole(self.superpeer)
        self.wait_zones()
        graph.is_whole(self.superpeer)

    def load_path(self):
        """Loads a path, of which a traversal takes a round trip a vertex; what a traversal of all says, and how long it takes."""
        path = self.write("path", "".join(f"{i} {i + 1}\n" for i in range(PATH)))
        self.shoal(self.superpeer, "graph", "load", path)
        begun = time.monotonic()
        levels = self.shoal_json(self.superpeer, "graph", "bfs", 0)["levels"]
        self.assertEqual(levels, [1] * (PATH + 1))
        return levels, time.monotonic() - begun

    def traverse(self, end, answers):
        """Traverses the path, again and again until the end."""
        while not end.is_set():
            answers.append(self.run_program("shoal", "graph", "bfs", 0, "--json", "--connect", self.superpeer.address))

    def test_traversals_go_on(self):
        """A peer is killed while a path is traversed: each traversal answers what it would have; also where the peer is started again at once."""
        levels, took = self.load_path()
        for round_ in range(2, 4):
            end, answers = threading.Event(), []
            thread = threading.Thread(target=self.traverse, args=(end, answers))
            thread.start()
            self.addCleanup(thread.join)
            self.addCleanup(end.set)
            time.sleep(took * self.random.uniform(0.2, 1.2))
            victim = self.random.randrange(PEERS)
            self.peers[victim].kill()
            if round_ == 2:
                before = len(answers)
                harness.eventually(self, "a traversal afterwards", harness.READY_MAX, lambda: len(answers) > before + 1)
            self.peers[victim] = self.begin_peer(victim, round_).wait_ready()
            end.set()
            thread.join()
            for answer in answers:
                self.assertEqual(answer.returncode, 0, answer.problem)
                self.assertEqual(json.loads(answer.text)["levels"], levels)
            self.wait_zones()


class NoRoom(Cluster):
    STORE_BYTES = ["16MiB", "16MiB", "64MiB", "64MiB"]

    def test_restorers_have_no_room(self):
        """Zones for which one backup has no room are brought back by another one, or by that one once it has made room."""
        client = self.client()
        *small, victim, _ = self.peers
        for peer in small:
            while client.ask("create", 400_000, peer.nid).startswith("ok "):
                pass
        content = {}
        for number in range(30):
            cid = client.do("create", 400_000, victim.nid)
            content[cid] = bytes([number]) * 400_000
            self.shoal(self.superpeer, "chunk", "put", cid, "--raw", stdin=content[cid])
        victim.kill()
        self.peers.remove(victim)
        for cid, data in content.items():
            self.assertEqual(self.shoal(self.superpeer, "chunk", "get", cid, "--raw").stdout, data)
        no_room = re.compile("can't be brought back here: another backup .*SHOAL_EFULL|chunks are moved to make room")
        self.assertTrue(any(no_room.search(peer.log()) for peer in small))

    def test_progress_is_shown(self):
        """While no peer has room for the zones of one that was killed, `shoal recovery` shows for each what its owner is at, and how large the replica is."""
        client = self.client()
        victim = self.peers.pop(0)
        filler = []
        content = {}
        for number in range(10):
            cid = client.do("create", 400_000, victim.nid)
            content[cid] = bytes([number]) * 400_000
            self.shoal(self.superpeer, "chunk", "put", cid, "--raw", stdin=content[cid])
        filler = []
        for peer in self.peers:
            while (made := client.ask("create", 400_000, peer.nid)).startswith("ok "):
                filler.append(made.split()[1])
        self.wait_zones()
        victim.kill()

        def restoring():
            """The zones of the victim with most of its chunks, once they are being restored and their owners have said how far they are."""
            said = json.loads(self.run_program("shoal", "recovery", "--json", "--connect", self.superpeer.address).text)
            zones, all_ = said["zones"], said["all"]
            for zone in zones:
                self.assertEqual("phase" in zone, zone["state"] == "restores", zone)
                self.assertLessEqual(zone.get("read_bytes", 0), zone.get("replica_bytes", 0), zone)
            for key in ("read_bytes", "replica_bytes"):
                self.assertEqual(all_[key], sum(zone.get(key, 0) for zone in zones))
            return [zone for zone in zones if zone.get("replica_bytes", 0) > 400_000]

        harness.eventually(self, "a zone that is tried again", harness.READY_MAX, lambda: any(zone["phase"] == "retries" for zone in restoring()))
        self.assertRegex(self.run_program("shoal", "recovery", "--connect", self.superpeer.address).text,
                         r"PROGRESS(.|\n)* (restores|no room) +\d+ +\d+  [a-z]+ +\d+%(.|\n)*are restored from .* of .* are read\.")
        for cid in filler:
            client.do("remove", cid)
        for cid, data in content.items():
            self.assertEqual(self.shoal(self.superpeer, "chunk", "get", cid, "--raw").stdout, data)


class Room(Cluster):
    """Both backups of the zones of a peer that fails have full stores; a peer that has none of their replicas has room."""
    STORE_BYTES = ["16MiB", "16MiB", "64MiB", "64MiB"]
    LATE = 1
    LARGE = 900_000

    def setUp(self):
        super().setUp()
        self.content, self.texts = {}, {}
        *self.small, self.victim = self.peers
        client = self.client()
        for _ in range(10):
            self.chunk_put(client, self.victim.nid, self.LARGE)
            self.small_put(client, self.victim.nid, 10)
        for peer in self.small:
            self.small_put(client, peer.nid, 50)
            while self.chunk_put(client, peer.nid, self.LARGE):
                pass
        self.wait_zones()

    def chunk_put(self, client, nid, size):
        """Makes a chunk with bytes of its own; False: there is no room."""
        made = client.ask("create", size, nid)
        if not made.startswith("ok "):
            self.assertIn("SHOAL_EFULL", made)
            return False
        cid, data = made.split()[1], self.random.randbytes(size)
        done = self.run_program("shoal", "chunk", "put", cid, "--raw", "--connect", self.superpeer.address, stdin=data)
        if done.returncode:  # a put needs a second block for a moment
            self.assertIn("out of chunk memory", done.problem)
            client.do("remove", cid)
            return False
        self.content[cid] = data
        return True

    def small_put(self, client, nid, count):
        """Makes chunks of all sizes that are small."""
        for number in range(count):
            text = f"small-{nid}-{number}-" + "x" * self.random.randrange(200)
            cid = client.do("create", len(text), nid)
            client.do("put", cid, text)
            self.texts[cid] = text

    def check_all(self):
        self.check(self.client(), self.texts)
        for cid, data in self.content.items():
            self.assertEqual(self.shoal(self.superpeer, "chunk", "get", cid, "--raw").stdout, data)

    def kill_victim(self):
        self.victim.kill()
        self.peers.remove(self.victim)

    def recovery(self):
        return json.loads(self.run_program("shoal", "recovery", "--json", "--connect", self.superpeer.address).text)

    def wait_owners(self):
        harness.eventually(self, "all zones with owners", 2 * harness.READY_MAX, lambda: not self.recovery()["zones"])
        self.check_all()

    def wait_back(self):
        self.wait_owners()
        self.wait_zones()

    def has_moved(self):
        return any("chunks are moved to make room" in peer.log() for peer in self.small)

    def report_await(self):
        harness.eventually(self, "a report of what is missing", harness.READY_MAX, lambda: self.recovery()["all"]["without_room"] > 0)
        self.assertFalse(self.has_moved())

    def late_begin(self):
        self.peers.append(self.begin_peer(len(self.STORE_BYTES) - 1).wait_ready())

    def test_backups_make_room(self):
        """The full backups move chunks of theirs to the peer that has room, and bring all zones back."""
        self.late_begin()
        self.kill_victim()
        self.wait_back()
        self.assertTrue(self.has_moved())

    def test_the_target_fails(self):
        """The peer that has room is killed while it is given chunks, and started again: all is back, and each chunk once."""
        self.late_begin()
        self.kill_victim()
        harness.eventually(self, "chunks on their way", harness.READY_MAX,
                           self.has_moved)
        self.peers[-1].kill()
        self.peers[-1] = self.begin_peer(len(self.STORE_BYTES) - 1, 2).wait_ready()
        self.wait_back()

    def test_room_comes_later(self):
        """There is no room anywhere: that is reported, nothing is lost, and all comes back by itself once a peer with room joins."""
        self.kill_victim()
        self.report_await()
        said = self.recovery()
        self.assertGreater(said["all"]["missing_bytes"], 0)
        short = [zone for zone in said["zones"] if zone.get("missing_bytes")]
        self.assertTrue(short and all(zone["state"] == "restores" for zone in short))
        told = self.run_program("shoal", "recovery", "--connect", self.superpeer.address)
        self.assertEqual(told.returncode, 1)
        self.assertIn("no room", told.text)
        self.assertIn("raise store_bytes_max", told.text)
        self.late_begin()
        self.wait_back()
        self.assertTrue(self.has_moved())

    def test_room_is_freed(self):
        """There is no room anywhere until chunks are removed: then all zones are back."""
        self.kill_victim()
        self.report_await()
        client = self.client()
        for cid in list(self.content):
            if int(cid.split(":")[0]) != self.victim.nid:
                client.do("remove", cid)
                del self.content[cid]
        self.wait_owners()


if __name__ == "__main__":
    unittest.main()
