"""Peers whose chunks are in a log on their own disk: what is written at each level is there after the peer was killed, and all of it
after an orderly stop; a log is its node's. And peers whose chunks are in the logs of others: what these have, and what happens
when one of them fails."""
import json
import pathlib
import random
import shutil
import signal
import unittest

import harness
import logs

LEVELS = ("async", "replicated", "durable")


class Replicas(logs.LogCase):
    def fill(self, client, nid, expected, luck, count=60):
        """Writes chunks of all kinds at each level; expected: what is there then, by ID, None: nothing."""
        self.write_some(client, nid, expected, luck, LEVELS, count)
        client.do("level", "replicated")  # of what is asynchronous at the end, a kill may undo the removals
        counter = client.do("create", 8, nid)
        for _ in range(10):
            client.do("add", counter, 7)
        expected[counter] = 70
        client.do("multi", 300, 16, nid)
        client.do("multi", 3, 300000, nid)

    def test_a_killed_peer_has_its_chunks(self):
        luck = random.Random(harness.seed())
        peer = self.start_on("data")
        nid, expected = peer.nid, {}
        for _ in range(3):
            client = self.client()
            self.fill(client, nid, expected, luck)
            client.do("sync")
            client.do("level", "durable")
            last = client.do("create", 8, nid)
            expected[last] = 0
            peer.kill()
            peer = self.start_on("data")
            self.assertEqual(peer.nid, nid)
            self.holds(self.client(), expected)
        self.assertRegex(peer.log(), r"the log is open\b.*\bchunks=[1-9]")

    def test_a_damaged_log_is_repaired(self):
        """A peer whose log goes bad while it runs writes the chunks once more: a scrub and a start find nothing, and each chunk."""
        luck = random.Random(harness.seed())
        peer = self.start_on("data")
        client, expected = self.client(), {}
        for _ in range(3):
            self.fill(client, peer.nid, expected, luck)
        client.do("sync")
        metrics = self.shoal_json(self.superpeer, "log", "info", peer.nid)["metrics"]
        segments = [segment for segment in
                    self.shoal_json(self.superpeer, "log", "segments", peer.nid)["segments"]
                    if segment["kind"] == "entries" and segment["filled_bytes"] > 100_000]
        slot = luck.choice(segments)["slot"]
        with open(self.folder / "data" / "replicas.log", "r+b") as file:
            file.seek(4096 + metrics["log_primary_bytes"] + slot * metrics["log_slot_bytes"] + 4096 + 300)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 4]))
        seen = self.shoal_json(self.superpeer, "log", "scrub", peer.nid)
        self.assertGreater(seen["damaged"], 0)
        self.assertEqual({place["is_replaced"] for place in seen["places"]}, {True})
        self.holds(client, expected)
        self.assertEqual(self.shoal_json(self.superpeer, "log", "verify", peer.nid)["damaged"], 0)
        metrics = self.shoal_json(self.superpeer, "log", "info", peer.nid)["metrics"]
        self.assertEqual((metrics["own_zones_damaged"], metrics["own_zones_repaired"]), (0, 1))
        for end in (peer.kill, lambda: peer.stop()):
            self.fill(client, peer.nid, expected, luck, count=20)
            client.do("sync")
            end()
            peer = self.start_on("data")
            client = self.client()
            self.holds(client, expected)
        peer.stop()
        seen = json.loads(self.run_program("shoal", "log", "verify", self.folder / "data", "--json").text)
        self.assertEqual(seen["damaged"], 0)

    def test_each_level_by_itself(self):
        """Without a sync: what was acknowledged as replicated or durable is there after a kill."""
        for level in LEVELS[1:]:
            peer = self.start_on(level)
            client = self.client()
            client.do("level", level)
            cids = [client.do("create", 20, peer.nid) for _ in range(20)]
            for cid in cids:
                client.do("put", cid, f"{level} {cid}".ljust(20))
            client.do("remove", cids[3])
            peer.kill()
            peer = self.start_on(level)
            again = self.client()
            for cid in cids:
                if cid == cids[3]:
                    self.assertRegex(again.ask("get", cid), "^SHOAL_ENOCHUNK")
                else:
                    self.assertEqual(again.do("get", cid).strip(), f"{level} {cid}")
            peer.stop()

    def test_the_nodes_own_level(self):
        """A request that names none has that of the option; an orderly stop loses nothing at any."""
        for level in LEVELS:
            peer = self.start_on(level, "--durability", level)
            client = self.client()
            cid = client.do("create", 5, peer.nid)
            client.do("put", cid, "there")
            if level == "async":
                peer.stop()
            else:
                peer.kill()
            self.start_on(level, "--durability", level)
            self.assertEqual(self.client().do("get", cid), "there")

    def test_what_has_moved(self):
        """Chunks that moved are with the peer that has them, and nowhere else, whichever is killed; and they can move back."""
        luck = random.Random(harness.seed())
        one, other = self.start_on("one"), self.start_on("other")
        client, expected = self.client(), {}
        self.fill(client, one.nid, expected, luck, count=20)
        large = client.do("create", 1000000, one.nid)
        for _ in range(2):
            self.shoal(self.superpeer, "migrate", one.nid, "--to", other.nid)
            self.holds(client, expected)
            one.kill()
            other.kill()
            one, other = self.start_on("one"), self.start_on("other")
            client = self.client()
            self.holds(client, expected)
            client.do("level", "durable")
            written = next(cid for cid, text in expected.items() if isinstance(text, str))
            expected[written] = expected[written][::-1]
            client.do("put", written, expected[written])
            self.assertEqual(client.do("size", large), "1000000")
            for peer in (one, other):
                harness.eventually(self, f"{peer.name} has swept", harness.READY_MAX, lambda:
                                   "knows which chunks of its log are its own" in peer.log())
            chunks = {row["nid"]: row["chunks"] for row in
                      self.shoal_json(self.superpeer, "status")["nodes"] if "chunks" in row}
            self.assertEqual(chunks[one.nid], 0)
            self.shoal(self.superpeer, "migrate", other.nid, "--to", one.nid)
            other.kill()
            other = self.start_on("other")
            client = self.client()
            self.holds(client, expected)
            one.stop()
            one = self.start_on("one")
            client = self.client()
            self.holds(client, expected)

    def test_a_log_is_its_nodes(self):
        peer, other = self.start_on("data"), self.start_on("other")
        cid = self.client().do("create", 5, peer.nid)
        peer.stop()
        other.stop()
        self.refused_on("data", "start this peer with replicas")
        shutil.copy(self.folder / "other" / "replicas.log", self.folder / "data" / "replicas.log")
        self.refused_on("data", "is the log of another node", "--replicas", "1")
        (self.folder / "data" / "replicas.log").unlink()
        peer = self.start_on("data")
        self.assertRegex(self.client().ask("get", cid), "^SHOAL_ENOCHUNK")

    def test_what_can_not_be(self):
        self.refused("shoald", "--superpeers", self.superpeer.address, "--replicas", "1", "--listen",
                     "127.0.0.1:0", says="needs a data_dir", status=harness.USAGE)
        self.refused("shoald", "--superpeers", self.superpeer.address, "--replicas", "1", "--listen",
                     "127.0.0.1:0", "--data-dir", self.folder / "x", "--zone-bytes", "1MiB",
                     says="chunk_bytes_max is 64MiB", status=harness.USAGE)
        self.refused("shoald", "--superpeers", self.superpeer.address, "--durability", "surely",
                     says="async or replicated or durable", status=harness.USAGE)
        self.refused("shoald", "--huge-pages", "false", says="write --huge-pages=true or --huge-pages=false",
                     status=harness.USAGE)
        idle = harness.Node(self, "idle", "--roles", "superpeer", "--replicas", "1").wait_ready()
        self.assertRegex(idle.log(), "an option has no effect.*option replicas: 1 has no effect on a node that is no peer")
        peer = harness.Node(self, "plain", "--superpeers", self.superpeer.address, "--failure-ns",
                            "1s").wait_ready()
        client = self.client()
        self.assertRegex(client.ask("sync"), "^SHOAL_ENOBACKUP no peer")
        self.assertTrue(client.do("create", 5, peer.nid))

    def shows(self, plain, logged):
        """The part of `shoal status` for a peer without a log, and of one whose log is its own."""
        rows = {row["nid"]: row for row in self.shoal_json(self.superpeer, "status")["nodes"]}
        self.assertNotIn("replicas", rows[plain.nid])
        self.assertIs(rows[plain.nid]["keeps_chunks"], False)
        self.assertIs(rows[logged.nid]["keeps_chunks"], True)
        replicas = rows[logged.nid]["replicas"]
        self.assertEqual(replicas["at"], "self")
        self.assertGreaterEqual(replicas["zones"], 1)
        self.assertEqual([replicas["under_replicated"], replicas["without_backup"], replicas["backups_stalled"]], [0, 0, 0])
        self.assertGreater(replicas["log_free_bytes"], 0)
        self.assertNotIn("log_error", replicas)
        shown = self.shoal(self.superpeer, "status").text
        self.assertRegex(shown, r"NODE  AT +ZONES UNDER-REPLICATED WITHOUT BACKUP")
        self.assertRegex(shown, rf"\n +{logged.nid}  self +\d+ +0 +0 ")
        self.assertNotRegex(shown, rf"\n +{plain.nid}  (self|peers)")

    def test_a_peer_without_a_log_promises_nothing(self):
        """Levels that only a log can keep are refused there, and nothing is changed; a peer with one keeps them meanwhile."""
        plain = harness.Node(self, "plain", "--superpeers", self.superpeer.address, "--failure-ns",
                             "1s").wait_ready()
        logged = self.start_on("data")
        client = self.client()
        cid, kept = client.do("create", 5, plain.nid), client.do("create", 5, logged.nid)
        client.do("put", cid, "there")
        for level in LEVELS[1:]:
            client.do("level", level)
            says = f"^SHOAL_ENOBACKUP node {plain.nid} has no log.*option replicas"
            self.assertRegex(client.ask("create", 5, plain.nid), says)
            self.assertRegex(client.ask("put", cid, "other"), says)
            self.assertRegex(client.ask("multi", 3, 16, plain.nid), "^SHOAL_ENOBACKUP")
            self.assertEqual(client.do("get", cid), "there")
            client.do("put", kept, level[:5])
        self.assertRegex(client.ask("sync"), f"^SHOAL_ENOBACKUP node {plain.nid} has no log.*others? ")
        self.shows(plain, logged)
        client.do("level", "async")
        client.do("put", cid, "async")
        plain.stop()
        harness.eventually(self, "a sync without that peer", harness.READY_MAX, lambda: client.ask("sync") == "ok")

    def test_registry_memory(self):
        """There a peer that is started again is another node."""
        memory = self.superpeer = harness.Node(self, "memory", "--roles", "superpeer", "--failure-ns",
                                               "1s").wait_ready()
        self.assertTrue(memory.nid)
        self.refused_on("data", "registry memory", "--replicas", "1")


# Zones that a few large chunks fill.
AT_PEERS = ("--store-bytes-max", "64MiB", "--chunk-bytes-max", "1MiB", "--zone-bytes", "1MiB",
            "--log-segment-bytes", "256KiB", "--replicas-at", "peers", "--replicas")
WANTED = 3
FIRST_BYTES = 16  # of an entry, that `shoal log dump` shows


class AtPeers(logs.LogCase):
    """Peers whose replicas are with each other."""

    FLAGS = (*AT_PEERS, WANTED)

    def begin_on(self, folder, *flags, prefix=()):
        node = super().begin_on(folder, *flags, prefix=prefix)
        node.folder = self.folder / folder
        return node

    def start(self, count):
        """Peers on folders of their own, of which each has its zones."""
        peers = [self.begin_on(f"peer{number}").wait_ready() for number in range(count)]
        self.complete(count)
        return peers

    def client(self):
        return harness.Client(self, [self.superpeer.address], 120_000_000_000)

    def zones(self):
        return self.shoal_json(self.superpeer, "status")["zones"]

    def complete(self, peers):
        """Waits until each of so many peers has a zone, and all zones have all backups."""
        def is_complete():
            zones = self.zones()
            return zones["all"] >= peers and not zones["under_replicated"]

        harness.eventually(self, "all zones have all backups", harness.READY_MAX, is_complete)
        self.assertEqual(self.zones()["lost"], 0)

    def state(self, nid):
        return next(row["state"] for row in self.shoal_json(self.superpeer, "node", "list")["nodes"]
                    if row["nid"] == nid)

    def put(self, cid, content):
        self.shoal(self.superpeer, "chunk", "put", cid, "--raw", stdin=content)

    def fill(self, client, nid, luck, count=30):
        """Writes chunks of all kinds at each level; returns what is there then: bytes by ID."""
        held, changed = {}, []
        for number in range(count):
            client.do("level", LEVELS[number % len(LEVELS)])
            text = f"{number:07}-first----" + "x" * luck.choice((1, 50, 3000))
            cid = client.do("create", len(text), nid)
            if luck.randrange(6):
                client.do("put", cid, text)
                held[cid] = text.encode()
            else:
                held[cid] = bytes(len(text))
            changed.append(cid)
            other = luck.choice(changed)
            if luck.randrange(4) == 0:
                client.do("remove", other)
                changed.remove(other)
                del held[other]
            elif luck.randrange(3) == 0:
                text = f"{number:07}-again----".ljust(len(held[other]), "y")
                client.do("put", other, text)
                held[other] = text.encode()
        counter = client.do("create", 8, nid)
        for _ in range(10):
            client.do("add", counter, 7)
        held[counter] = (70).to_bytes(8, "little")
        client.do("multi", 300, 16, nid)
        client.do("multi", 3, 300000, nid)
        for size in (250000, 800000):
            cid = client.do("create", size, nid)
            held[cid] = luck.randbytes(size)
            self.put(cid, held[cid])
        client.do("level", "default")
        return held

    def in_log(self, folder, owner):
        """What the log of a node that does not run has of an owner's chunks: by ID, the pieces by offset."""
        chunks = {}
        info = json.loads(self.run_program("shoal", "log", "info", folder, "--json").text)
        for zone in (row["zone"] for row in info["zones"] if row["owner"] == owner):
            rows = self.run_program("shoal", "log", "dump", folder, "--zone", zone, "--json").text
            for row in map(json.loads, rows.splitlines()):
                if (row["standing"] == "current" and not row["removal"] and
                        not row["chunk"].startswith("0:")):
                    chunks.setdefault(row["chunk"], {})[row.get("offset", 0)] = row
        return chunks

    def is_content(self, content, pieces):
        """Whether the entries of a chunk are what it holds, as far as a dump shows that."""
        end = 0
        for offset, row in sorted(pieces.items()):
            part = content[offset:offset + row["size"]]
            shown = part[:0 if row["zeros"] else FIRST_BYTES].hex()
            if offset != end or row["first_bytes"] != shown or (row["zeros"] and any(part)):
                return False
            end += row["size"]
        return end == len(content)

    def stop_all(self, client, peers):
        """Ends the peers at one moment, before any takes over another's zones, after all that was written is on disks."""
        client.do("sync")
        for peer in peers:
            peer.process.kill()
        for peer in peers:
            peer.kill()

    def copies(self, owner, held, peers, wanted=WANTED, is_exact=True):
        """Checks what the logs of peers that don't run have of an owner's chunks: each chunk in so many of them, and nothing that is not there.
        Returns by folder how many chunks it has."""
        logs = {peer.folder.name: self.in_log(peer.folder, owner) for peer in peers}
        for cid, content in held.items():
            found = [name for name, chunks in logs.items()
                     if cid in chunks and self.is_content(content, chunks[cid])]
            self.assertTrue(len(found) == wanted or (len(found) > wanted and not is_exact),
                             f"{cid} of {len(content)} bytes, as it is, only in {found} of {list(logs)}")
        for name, chunks in logs.items():
            self.assertEqual(set(chunks) - set(held), set(), f"{name} has more of {owner}")
        return {name: len(chunks) for name, chunks in logs.items()}

    def test_each_backup_has_all(self):
        luck = random.Random(harness.seed())
        peers = self.start(5)
        client = self.client()
        held = {peer.nid: self.fill(client, peer.nid, luck) for peer in peers[:2]}
        self.complete(5)
        self.stop_all(client, peers)
        # On a slow machine a backup that lagged was replaced, and its replica may still be there.
        is_exact = not any("another one is needed" in peer.log() for peer in peers)
        for nid, chunks in held.items():
            found = self.copies(nid, chunks, peers, is_exact=is_exact)
            self.assertGreaterEqual(sum(found.values()), WANTED * len(chunks))

    def test_a_backup_is_killed(self):
        """While a client writes; then a new one takes its place."""
        luck = random.Random(harness.seed())
        peers = self.start(4)
        owner = peers[0]
        client = self.client()
        held = self.fill(client, owner.nid, luck)
        client.do("level", "replicated")
        counter = client.do("create", 8, owner.nid)
        total = 0
        peers[1].kill()
        for condition in (lambda: self.state(peers[1].nid) == "failed",
                          lambda: self.zones()["under_replicated"]):
            while not condition():
                total += 1
                self.assertEqual(int(client.do("add", counter, 1)), total)
        new = self.begin_on("new")
        peers[1] = new.wait_ready()
        while self.zones()["under_replicated"]:
            total += 1
            self.assertEqual(int(client.do("add", counter, 1)), total)
        held[counter] = total.to_bytes(8, "little")
        self.stop_all(client, peers)
        self.assertEqual(self.copies(owner.nid, held, peers)["new"], len(held))

    def test_a_backup_stands_still(self):
        """No write is acknowledged until it is out of the record; later it is there again, as another life."""
        luck = random.Random(harness.seed())
        peers = self.start(4)
        owner, still = peers[0], peers[2]
        client = self.client()
        held = self.fill(client, owner.nid, luck, count=15)
        client.do("level", "replicated")
        cid = client.do("create", 5, owner.nid)
        client.do("put", cid, "first")
        counter = client.do("create", 8, owner.nid)
        held[counter] = (1).to_bytes(8, "little")
        client.do("sync")
        self.stand_still(still.process)
        client.process.stdin.write(f"put {cid} again\n".encode())
        client.process.stdin.flush()
        self.assertEqual(client.answer(), "ok")
        self.assertEqual(self.state(still.nid), "failed")
        self.assertGreater(self.zones()["under_replicated"], 0)
        held[cid] = b"again"
        still.process.send_signal(signal.SIGCONT)
        harness.eventually(self, "it is up again", harness.READY_MAX,
                           lambda: self.state(still.nid) == "up")
        client.do("put", cid, "third")
        held[cid] = b"third"
        self.complete(4)
        client.do("add", counter, 1)
        self.stop_all(client, peers)
        self.copies(owner.nid, held, peers)

    def stand_still(self, process):
        """Returns when each thread stands still, which is a little after the signal."""
        process.send_signal(signal.SIGSTOP)
        self.addCleanup(process.send_signal, signal.SIGCONT)
        harness.eventually(self, "it is stopped", harness.READY_MAX, lambda: all(
            (task / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
            for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir()))

    def test_a_backup_starts_again(self):
        """On its folder, at once: with what its log has, or without."""
        luck = random.Random(harness.seed())
        peers = self.start(4)
        owner, nid = peers[0], peers[3].nid
        client = self.client()
        held = self.fill(client, owner.nid, luck)
        for has_log in (True, False):
            client.do("sync")
            peers[3].kill()
            if not has_log:
                (peers[3].folder / "replicas.log").unlink()
            peers[3] = self.begin_on("peer3").wait_ready()
            self.assertEqual(peers[3].nid, nid)
            client.do("level", "replicated")
            cid = client.do("create", 5, owner.nid)
            client.do("put", cid, "there")
            held[cid] = b"there"
            self.complete(4)
        self.stop_all(client, peers)
        self.copies(owner.nid, held, peers)

    def test_too_few(self):
        one = self.begin_on("one").wait_ready()
        client = self.client()
        for level in LEVELS[1:]:
            client.do("level", level)
            self.assertRegex(client.ask("create", 5, one.nid), "^SHOAL_ENOBACKUP")
        client.do("level", "async")
        cid = client.do("create", 5, one.nid)
        client.do("put", cid, "alone")
        other = self.begin_on("other").wait_ready()
        client.do("level", "replicated")

        def is_created():
            answer = client.ask("create", 5, one.nid)
            if not answer.startswith("ok "):
                self.assertRegex(answer, "^SHOAL_ENOBACKUP")
            return answer[3:] if answer.startswith("ok ") else None

        second = harness.eventually(self, "one backup is there", harness.READY_MAX, is_created)
        client.do("put", second, "there")
        self.assertGreater(self.zones()["under_replicated"], 0)
        held = {cid: b"alone", second: b"there"}
        harness.eventually(self, "what was written alone is there, too", harness.READY_MAX,
                           lambda: client.ask("sync") == "ok")
        self.stop_all(client, [one, other])
        self.copies(one.nid, held, [one, other], wanted=1)

    def test_what_moves(self):
        """The new owner's backups have what moved, and the former one's nothing of it, nor its own changes."""
        luck = random.Random(harness.seed())
        peers = self.start(4)
        one, other = peers[:2]
        client = self.client()
        held = self.fill(client, one.nid, luck)
        own = self.fill(client, other.nid, luck, count=15)
        self.shoal(self.superpeer, "migrate", one.nid, "--to", other.nid)
        client.do("level", "replicated")
        for cid, content in held.items():
            if len(content) < 4000:
                held[cid] = f"{cid}-moved".ljust(len(content), "m").encode()[:len(content)]
                client.do("put", cid, held[cid].decode())
        self.complete(4)
        self.stop_all(client, peers)
        self.copies(other.nid, held | own, peers)
        self.copies(one.nid, {}, peers)


if __name__ == "__main__":
    unittest.main()
