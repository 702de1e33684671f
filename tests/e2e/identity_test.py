"""Who a node is: a peer with a folder keeps its ID and gives no chunk ID twice, and a folder is one node's;
peers that are gone are forgotten, by an operator's word or by themselves."""
import re
import shutil
import unittest

import harness


class Rig(harness.Case):
    """A superpeer with a folder, and peers."""

    def setUp(self):
        super().setUp()
        self.lives = 0

    def begin_on(self, folder, superpeer, *flags):
        self.lives += 1
        return self.begin(f"life{self.lives}", superpeer, "--data-dir", folder, *flags)

    def on(self, folder, superpeer, *flags):
        return self.begin_on(folder, superpeer, *flags).wait_ready()

    def start(self, *flags, name="superpeer"):
        superpeer = harness.Node(self, name, "--roles", "superpeer", "--data-dir",
                                 self.folder / name, "--failure-ns", "1s", *flags)
        return superpeer.wait_ready()

    def begin(self, name, superpeer, *flags):
        return harness.Node(self, name, "--superpeers", superpeer.address, "--failure-ns", "1s", *flags)

    def peer(self, name, superpeer, *flags):
        return self.begin(name, superpeer, *flags).wait_ready()

    def states(self, node):
        return {row["nid"]: row["state"] for row in self.shoal_json(node, "node", "list")["nodes"]}

    def seen(self, node, nid, state):
        harness.eventually(self, f"node {nid} is {state}", harness.READY_MAX,
                           lambda: self.states(node).get(nid) == state)

    def create(self, node, peer):
        answer = self.shoal(node, "chunk", "create", "--node", peer.nid, "--text", "here")
        return re.search(r"\d+:\d+", answer.text).group(0)


class Identity(Rig):
    """Peers with folders."""

    def refused_on(self, folder, superpeer, says, *flags):
        """A peer on that folder must end, and say why."""
        peer = self.begin_on(folder, superpeer, *flags)
        self.assertNotEqual(peer.wait_end(harness.READY_MAX), 0)
        self.assertRegex(peer.log(), says)

    def test_a_killed_peer_is_the_same_node(self):
        superpeer = self.start()
        other, peer = self.peer("other", superpeer), self.on("data", superpeer)
        self.assertNotEqual(other.nid, peer.nid)
        nid, cids = peer.nid, set()
        for life in range(4):
            if life:
                peer.kill() if life % 2 else peer.stop()
                peer = self.on("data", superpeer)
            self.assertEqual(peer.nid, nid)
            lost = sorted(cids)[-1:]
            answer = self.shoal(superpeer, "chunk", "create", "64", "--count", "50", "--node", nid)
            made = {tuple(map(int, cid.split(":"))) for cid in re.findall(r"\d+:\d+", answer.text)}
            self.assertFalse(made & cids)
            cids |= made
            # What an earlier life had is gone, and nobody's chunk now.
            for creator, local in lost:
                self.refused("shoal", "chunk", "get", f"{creator}:{local}", "--connect",
                             superpeer.address, says="chunk does not exist")
            self.assertIn(self.create(superpeer, peer).split(":")[0], str(nid))
        self.assertEqual(self.states(superpeer), {superpeer.nid: "up", other.nid: "up", nid: "up"})

    def test_a_dump_fits_the_next_life(self):
        superpeer = self.start()
        peer = self.on("data", superpeer)
        cid = self.create(superpeer, peer)
        self.shoal(superpeer, "store", "dump", peer.nid, "kept")
        peer.kill()
        peer = self.on("data", superpeer)
        self.shoal(superpeer, "store", "load", peer.nid, "kept")
        self.assertIn("here", self.shoal(superpeer, "chunk", "get", cid).text)
        self.assertNotEqual(self.create(superpeer, peer), cid)
        self.shoal(superpeer, "chunk", "remove", cid)
        self.assertNotEqual(self.create(superpeer, peer), cid)

    def test_a_peer_that_has_migrated_is_the_same_node(self):
        superpeer = self.start()
        other, peer = self.peer("other", superpeer), self.on("data", superpeer)
        nid = peer.nid
        moved, gone = self.create(superpeer, peer), self.create(superpeer, peer)
        guest = self.create(superpeer, other)
        at = {"moved": moved, "gone": gone, "guest": guest}
        self.shoal(superpeer, "store", "dump", nid, "before")
        self.shoal(superpeer, "migrate", nid, "--to", other.nid, "--first", moved, "--last", moved)
        self.shoal(superpeer, "migrate", other.nid, "--to", nid, "--first", guest, "--last", guest)
        peer.kill()
        peer = self.on("data", superpeer)
        self.assertEqual(peer.nid, nid)
        self.assertIn("here", self.shoal(superpeer, "chunk", "get", moved).text)
        self.refused("shoal", "store", "load", nid, "before", "--connect", superpeer.address,
                     says="a chunk is on another node")
        for name in ("gone", "guest"):
            self.refused("shoal", "chunk", "get", at[name], "--connect", superpeer.address,
                         says="chunk does not exist")
        # It gives and takes chunks as ever, its own of before, too.
        new = self.create(superpeer, peer)
        self.shoal(superpeer, "migrate", nid, "--to", other.nid)
        self.assertIn("here", self.shoal(superpeer, "chunk", "get", new).text)
        self.shoal(superpeer, "migrate", other.nid, "--to", nid)
        other.kill()
        self.seen(superpeer, other.nid, "failed")
        for cid in (moved, new):
            self.assertIn("here", self.shoal(superpeer, "chunk", "get", cid).text)

    def test_a_clone_is_refused(self):
        superpeer = self.start()
        peer = self.on("data", superpeer)
        for clone in ("waiting", "clone"):
            shutil.copytree(self.folder / "data", self.folder / clone)
        # While the original runs, a clone waits for it; and behind it, it is old.
        clone = self.begin_on("waiting", superpeer)
        harness.eventually(self, "the clone waits", harness.READY_MAX,
                           lambda: "former life counts as up" in clone.log())
        self.assertRegex(clone.log(), rf"node {peer.nid}, which this is, is up at {peer.address}")
        clone.statuses.add(-15)
        clone.end()
        peer.stop()
        peer = self.on("data", superpeer)
        for _ in range(5):
            self.refused_on("clone", superpeer, "data_dir is a copy of node .* or an old backup")
        self.create(superpeer, peer)

    def test_an_old_backup_is_refused(self):
        superpeer = self.start()
        peer = self.on("data", superpeer)
        nid = peer.nid
        peer.stop()
        shutil.copytree(self.folder / "data", self.folder / "backup")
        for _ in range(2):
            self.on("data", superpeer).stop()
        for _ in range(5):
            self.refused_on("backup", superpeer, "start it on its newest data_dir, or remove the file")
        (self.folder / "backup" / "identity").unlink()
        self.assertNotEqual(self.on("backup", superpeer).nid, nid)
        self.assertEqual(self.on("data", superpeer).nid, nid)

    def test_a_foreign_cluster_is_refused(self):
        one, two = self.start(name="one"), self.start(name="two")
        self.on("data", one).stop()
        self.refused_on("data", two, "belongs to a node of another cluster of that name")
        peer = self.begin_on("data", two, "--cluster", "else")
        self.assertNotEqual(peer.wait_end(), 0)
        self.assertRegex(peer.log(), "data_dir belongs to a node of another cluster")
        damaged = self.folder / "data" / "identity"
        content = bytearray(damaged.read_bytes())
        content[20] ^= 1
        damaged.write_bytes(content)
        self.refused_on("data", one, "fail their checksum.*the peer joins as a new node")

    def traits(self, node, nid):
        """What `shoal status` says of a peer, for the placement of replicas."""
        row = next(row for row in self.shoal_json(node, "status")["nodes"] if row["nid"] == nid)
        return tuple(row.get(name) for name in ("keeps_replicas", "machine", "rack", "network_switch"))

    def test_the_view_says_where_a_peer_is(self):
        superpeer = self.start()
        bare = self.peer("bare", superpeer, "--rack", "r2")
        peer = self.on("data", superpeer, "--rack", "r1", "--machine", "m1", "--replicas", "1")
        nid = peer.nid
        for node in superpeer, peer:
            self.assertEqual(self.traits(node, nid), (True, "m1", "r1", ""))
            # Without a log there is nowhere to keep replicas.
            self.assertEqual(self.traits(node, bare.nid), (False, "", "r2", ""))
        self.assertEqual(self.traits(superpeer, superpeer.nid), (None, None, None, None))
        text = self.shoal(bare, "node", "list").text
        self.assertRegex(text, rf"(?m)^ *{nid} +peer +up +\S+ +yes +m1 +r1 +-$")
        self.assertRegex(text, rf"(?m)^ *{bare.nid} +peer +up +\S+ +no +- +r2 +-$")
        # A peer that is started again says what holds from then on.
        peer.kill()
        peer = self.on("data", superpeer, "--rack", "r3", "--network-switch", "s1",
                       "--replicas", "1", "--keeps-replicas=false")
        self.assertEqual(peer.nid, nid)
        self.assertEqual(self.traits(superpeer, nid), (False, "", "r3", "s1"))
        # It is in the registry, which the superpeer reads from its disk.
        superpeer.kill()
        again = self.start("--listen", superpeer.address, name="superpeer")
        self.seen(again, nid, "up")
        self.assertEqual(self.traits(again, nid), (False, "", "r3", "s1"))

    def test_a_forgotten_peer_comes_back(self):
        superpeer = self.start()
        peer = self.on("data", superpeer)
        nid = peer.nid
        peer.kill()
        self.seen(superpeer, nid, "failed")
        self.shoal(superpeer, "node", "forget", nid)
        self.assertEqual(self.on("data", superpeer).nid, nid)


class Forget(Rig):
    """Peers that are gone."""

    def forget(self, node, nid, says):
        self.refused("shoal", "node", "forget", nid, "--connect", node.address, says=says)

    def test_an_operator_forgets(self):
        superpeer = self.start()
        one, two = self.peer("one", superpeer), self.peer("two", superpeer)
        cid = self.create(superpeer, one)
        self.shoal(superpeer, "name", "set", "kept", cid)
        self.forget(superpeer, one.nid, "is up: stop it first")
        self.forget(superpeer, superpeer.nid, "does not have the role")
        self.forget(superpeer, 999, "no such node")
        one.kill()
        self.seen(superpeer, one.nid, "failed")
        self.forget(superpeer, one.nid, "1 names of its chunks remain, and 0 ranges")
        self.shoal(superpeer, "name", "remove", "kept")
        self.assertTrue(self.shoal_json(superpeer, "node", "forget", one.nid)["forgotten"])
        self.assertNotIn(one.nid, self.states(superpeer))
        harness.eventually(self, "the other peer has heard", harness.READY_MAX,
                           lambda: one.nid not in self.states(two))
        # Its ID is not the next one's: all others come first.
        self.assertGreater(self.peer("three", superpeer).nid, two.nid)

    def test_chunks_that_have_moved_keep_it(self):
        superpeer = self.start()
        one, two = self.peer("one", superpeer), self.peer("two", superpeer)
        cid = self.create(superpeer, one)
        self.shoal(superpeer, "migrate", one.nid, "--to", two.nid)
        one.stop()
        self.seen(superpeer, one.nid, "left")
        self.forget(superpeer, one.nid, "0 names of its chunks remain, and [1-9]")
        self.assertIn("here", self.shoal(superpeer, "chunk", "get", cid).text)
        two.kill()
        self.seen(superpeer, two.nid, "failed")
        self.assertTrue(self.shoal_json(superpeer, "node", "forget", two.nid)["forgotten"])
        self.refused("shoal", "chunk", "get", cid, "--connect", superpeer.address, says="chunk does not exist")
        self.assertTrue(self.shoal_json(superpeer, "node", "forget", one.nid)["forgotten"])

    def test_chunks_that_were_removed_where_they_are_do_not(self):
        superpeer = self.start()
        one, two = self.peer("one", superpeer), self.on("data", superpeer)
        cids = [self.create(superpeer, one) for _ in range(2)]
        self.shoal(superpeer, "migrate", one.nid, "--to", two.nid)
        one.stop()
        self.seen(superpeer, one.nid, "left")
        self.shoal(superpeer, "chunk", "remove", cids[0])
        self.forget(superpeer, one.nid, "0 names of its chunks remain, and 1 ranges")
        self.assertIn("here", self.shoal(superpeer, "chunk", "get", cids[1]).text)
        self.shoal(superpeer, "chunk", "remove", cids[1])
        self.assertTrue(self.shoal_json(superpeer, "node", "forget", one.nid)["forgotten"])
        self.refused("shoal", "chunk", "get", cids[1], "--connect", superpeer.address,
                     says="chunk does not exist")

    def test_chunks_that_a_former_life_had_do_not(self):
        superpeer = self.start()
        one, two = self.peer("one", superpeer), self.on("data", superpeer)
        self.create(superpeer, one)
        self.shoal(superpeer, "migrate", one.nid, "--to", two.nid)
        one.stop()
        self.seen(superpeer, one.nid, "left")
        two.kill()
        self.assertEqual(self.on("data", superpeer).nid, two.nid)
        self.assertTrue(self.shoal_json(superpeer, "node", "forget", one.nid)["forgotten"])

    def test_they_go_by_themselves(self):
        superpeer = self.start("--forget-ns", "2s")
        one, two = self.peer("one", superpeer), self.peer("two", superpeer)
        one.kill()
        two.stop()
        self.seen(superpeer, one.nid, "failed")
        again = self.peer("again", superpeer, "--listen", one.address)
        harness.eventually(self, "both are forgotten", harness.READY_MAX,
                           lambda: self.states(superpeer).keys() == {superpeer.nid, again.nid})


if __name__ == "__main__":
    unittest.main()
