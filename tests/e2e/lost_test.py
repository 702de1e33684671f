"""Superpeers whose disks are lost, as real processes: an operator declares a disk lost."""
import re
import shutil
import unittest

import harness
import superpeers_test


class Lost(superpeers_test.Registry):
    """Superpeers with names."""

    def named(self, node, first, count=8):
        for i in range(first, first + count):
            self.shoal(node, "name", "set", f"name/{i}", f"64:{i}")

    def has_names(self, node, first, count=8):
        for i in range(first, first + count):
            self.assertIn(f"64:{i}", self.shoal(node, "name", "get", f"name/{i}").text)

    def holds_all(self, node, nids):
        """Waits until all shards are held by these superpeers."""
        def whole():
            shards = self.shoal_json(node, "metadata")["superpeers"]
            rows = [row for row in shards if row.get("role") == "leader"]
            return rows and all(sorted(shard["replicas"]) == nids for shard in rows[0]["shards"])
        harness.eventually(self, f"all shards at {nids}", harness.READY_MAX, whole)

    def test_an_empty_folder_in_the_place_of_a_lost_one(self):
        for node in self.superpeers:
            node.wait_ready()
        self.holds_all(self.superpeers[0], [1, 2, 3])
        self.named(self.superpeers[0], 1)
        self.refused("shoal", "node", "lost", 2, "--connect", self.addresses[0],
                     says="node is up.*stop its process first")
        self.refused("shoal", "node", "lost", 9, "--connect", self.addresses[0],
                     says="no superpeer with that ID")
        self.refused("shoal", "node", "lost", 64, "--connect", self.addresses[0],
                     says="no such peer")
        self.superpeers[1].kill()
        self.seen(self.superpeers[0], self.addresses[1], "failed")
        kept = self.folder / "kept"
        shutil.move(self.folder / "data1", kept)
        answer = self.shoal_json(self.superpeers[0], "node", "lost", 2)
        self.assertTrue(answer["lost"])
        self.named(self.superpeers[0], 100)
        # With an empty folder it takes part again; nothing waits, and nothing is missing.
        self.superpeers[1] = self.start(1).wait_ready()
        self.holds_all(self.superpeers[0], [1, 2, 3])
        self.has_names(self.superpeers[1], 1)
        self.has_names(self.superpeers[1], 100)
        status = self.shoal_json(self.superpeers[0], "status")
        self.assertEqual(status["waiting_shards"], [])
        # The folder that was declared lost is refused when it comes back after all.
        self.superpeers[1].kill()
        shutil.rmtree(self.folder / "data1")
        shutil.move(kept, self.folder / "data1")
        old = self.start(1)
        harness.eventually(self, "the old folder is refused", harness.READY_MAX,
                           lambda: re.search(r"clone|old backup", old.log()))
        self.has_names(self.superpeers[0], 100)

    def forced(self, folder):
        return self.run_program("shoal", "metadata", "force", folder, "--json")

    def test_one_survivor_is_forced_to_go_on(self):
        """Two of three folders are lost for good. What the survivor has is answered again."""
        for node in self.superpeers:
            node.wait_ready()
        peers = [harness.Node(self, f"peer{i}", "--roles", "peer", "--superpeers",
                              ",".join(self.addresses), "--failure-ns", "1s").wait_ready()
                 for i in range(2)]
        self.holds_all(self.superpeers[0], [1, 2, 3])
        self.named(self.superpeers[0], 1, 20)
        cid = superpeers_test.first_cid(
            self.shoal(peers[0], "chunk", "create", "8", "--node", peers[0].nid).text)
        self.shoal(peers[0], "chunk", "put", cid, "--text", "survives")
        self.shoal(peers[0], "migrate", peers[0].nid, "--to", peers[1].nid)
        self.refused("shoal", "metadata", "force", self.folder / "data2", says="node runs on")
        for node in self.superpeers:
            node.kill()
        for i in range(2):
            shutil.rmtree(self.folder / f"data{i}")
        self.refused("shoal", "metadata", "force", self.folder / "data0", says="no folder")
        self.assertFalse((self.folder / "data0").exists())
        (self.folder / "empty").mkdir()
        self.refused("shoal", "metadata", "force", self.folder / "empty", says="holds no superpeer")
        self.assertEqual(self.forced(self.folder / "data2").returncode, 0)
        survivor = self.start(2).wait_ready()
        self.seen(survivor, self.addresses[0], "left")
        self.seen(survivor, peers[0].address, "up")
        harness.eventually(
            self, "names are answered again", harness.READY_MAX,
            lambda: self.run_program("shoal", "name", "get", "name/1", "--connect",
                                     survivor.address).returncode == 0)
        self.has_names(survivor, 1, 20)
        self.named(survivor, 100)
        harness.eventually(
            self, "the chunk is found where it is", harness.READY_MAX,
            lambda: b"survives" == self.run_program("shoal", "chunk", "get", cid, "--raw",
                                                    "--connect", survivor.address).stdout)
        rows = self.shoal_json(survivor, "metadata")["superpeers"]
        origins = {shard["origin"] for row in rows for shard in row["shards"]}
        self.assertIn("copy", origins)
        self.assertRegex(self.shoal(survivor, "metadata").text,
                         r"Restored from old copies(.|\n)*\n\d+ +3 +\d+ +\d+")
        # Others join it with empty folders; one with its old registry would be a stranger.
        late = harness.Node(self, "late", "--roles", "superpeer", "--superpeers", survivor.address,
                            "--data-dir", self.folder / "late", "--failure-ns", "1s").wait_ready()
        self.holds_all(survivor, sorted([3, late.nid]))
        survivor.kill()
        survivor = self.start(2).wait_ready()
        self.has_names(late, 100)
        self.has_names(late, 1, 20)

    def test_a_former_member_is_a_stranger(self):
        """A former superpeer that comes back on its folder neither harms the new cluster nor is let
        in, however much longer its log is."""
        for node in self.superpeers:
            node.wait_ready()
        self.holds_all(self.superpeers[0], [1, 2, 3])
        self.superpeers[2].kill()
        self.seen(self.superpeers[0], self.addresses[2], "failed")
        self.named(self.superpeers[0], 1)
        for node in self.superpeers[:2]:
            node.kill()
        self.assertEqual(self.forced(self.folder / "data2").returncode, 0)
        survivor = self.start(2).wait_ready()
        self.named(survivor, 100)
        old = self.start(0)
        harness.eventually(self, "the old member is refused", harness.READY_MAX,
                           lambda: "the cluster was forced to go on without it" in old.log())
        self.assertTrue(list((self.folder / "data0").glob("journal.*")))  # it keeps what it has
        self.named(survivor, 200)
        self.has_names(survivor, 100)
        self.assertNotIn("takes part no longer", survivor.log())

    def test_a_peer_that_the_survivor_has_not_seen_restart(self):
        """A peer was started again while the survivor was down: it goes on, with its chunks."""
        def peer(name):
            return harness.Node(self, name, "--roles", "peer", "--superpeers",
                                ",".join(self.addresses), "--failure-ns", "1s",
                                "--data-dir", self.folder / "peer").wait_ready()
        for node in self.superpeers:
            node.wait_ready()
        self.holds_all(self.superpeers[0], [1, 2, 3])
        former = peer("former")
        self.superpeers[2].kill()
        self.seen(self.superpeers[0], self.addresses[2], "failed")
        former.kill()
        self.seen(self.superpeers[0], former.address, "failed")
        again = peer("again")
        self.assertEqual(again.nid, former.nid)
        cid = superpeers_test.first_cid(
            self.shoal(again, "chunk", "create", "8", "--node", again.nid).text)
        self.shoal(again, "chunk", "put", cid, "--text", "survives")
        for node in self.superpeers[:2]:
            node.kill()
        for i in range(2):
            shutil.rmtree(self.folder / f"data{i}")
        self.assertEqual(self.forced(self.folder / "data2").returncode, 0)
        survivor = self.start(2).wait_ready()
        harness.eventually(
            self, "its chunk is read", harness.READY_MAX,
            lambda: b"survives" == self.run_program("shoal", "chunk", "get", cid, "--raw",
                                                    "--connect", survivor.address).stdout)
        self.seen(survivor, again.address, "up")

    def test_a_peer_that_the_survivor_has_not_heard_of(self):
        """A peer that joined without the survivor keeps its ID and its chunks, though the survivor has
        forgotten another one; nor is its ID given to a new one before."""
        def peer(name):
            return harness.Node(self, name, "--roles", "peer", "--superpeers",
                                ",".join(self.addresses), "--failure-ns", "1s").wait_ready()
        for node in self.superpeers:
            node.wait_ready()
        self.holds_all(self.superpeers[0], [1, 2, 3])
        gone = peer("gone")
        gone.stop()
        self.seen(self.superpeers[2], gone.address, "left")
        self.shoal(self.superpeers[2], "node", "forget", gone.nid)
        self.superpeers[2].kill()
        self.seen(self.superpeers[0], self.addresses[2], "failed")
        late = peer("late")
        cid = superpeers_test.first_cid(
            self.shoal(late, "chunk", "create", "8", "--node", late.nid).text)
        self.shoal(late, "chunk", "put", cid, "--text", "survives")
        for node in self.superpeers[:2]:
            node.kill()
        self.assertEqual(self.forced(self.folder / "data2").returncode, 0)
        survivor = self.start(2).wait_ready()
        self.assertNotEqual(peer("fresh").nid, late.nid)
        self.seen(survivor, late.address, "up")
        harness.eventually(
            self, "its chunk is found", harness.READY_MAX,
            lambda: b"survives" == self.run_program("shoal", "chunk", "get", cid, "--raw",
                                                    "--connect", survivor.address).stdout)

    def test_a_damaged_folder_is_not_forced(self):
        for node in self.superpeers:
            node.wait_ready()
        for node in self.superpeers:
            node.kill()
        damaged = self.folder / "data1"
        for path in damaged.glob("journal.*"):
            content = bytearray(path.read_bytes())
            content[8192] ^= 1
            path.write_bytes(content)
        self.assertNotEqual(self.forced(damaged).returncode, 0)

    def test_metadata_is_saved_and_restored(self):
        for node in self.superpeers:
            node.wait_ready()
        first = self.superpeers[0]
        file = self.folder / "saved"
        self.named(first, 1, 40)
        self.shoal(first, "scratch", "put", "job", "--text", "running")
        barrier = self.shoal(first, "barrier", "create", "3").text.split()[0]
        saved = self.shoal_json(first, "metadata", "save", file)
        self.assertEqual((saved["names"], saved["barriers"], saved["scratch"]), (40, 1, 1))
        self.shoal(first, "name", "set", "later", "64:7")
        connect = ("--connect", first.address)
        # It has names already; and a disk that is full leaves the file as it was.
        self.refused("shoal", "metadata", "restore", file, *connect, says="already")
        before = file.read_bytes()
        self.refused("shoal", "metadata", "save", self.folder / "no" / "saved", *connect,
                     says="input or output failed")
        (self.folder / "saved.part").symlink_to("/dev/full")
        self.refused("shoal", "metadata", "save", file, *connect, says="no space left")
        self.assertEqual(file.read_bytes(), before)
        # A new cluster, of the same name; files that can't be its metadata are refused.
        address = superpeers_test.free_addresses(1)[0]
        new = harness.Node(self, "new", "--roles", "superpeer", "--superpeers", address,
                           "--listen", address, "--data-dir", self.folder / "new").wait_ready()
        connect = ("--connect", new.address)
        self.refused("shoal", "metadata", "restore", self.folder / "none", *connect,
                     says="check the path")
        wrong = self.write("wrong", "not what `shoal metadata save` writes")
        self.refused("shoal", "metadata", "restore", wrong, *connect, says="is not a file of")
        for at in (10, 40, len(before) // 2, len(before) - 1):
            damaged = bytearray(before)
            damaged[at] ^= 4
            self.refused("shoal", "metadata", "restore", self.write("damaged", bytes(damaged)),
                         *connect, says="fail their checksum")
        self.refused("shoal", "metadata", "restore", self.write("cut", before[:-100]), *connect,
                     says="ends too early|fail their checksum")
        self.refused("shoal", "metadata", "restore", file, *connect, "--cluster", "other",
                     says="is of the cluster", status=harness.NO_CLUSTER)
        self.assertEqual(self.shoal_json(new, "name", "list")["names"], [])
        restored = self.shoal_json(new, "metadata", "restore", file)
        self.assertEqual(restored["names"], 40)
        self.has_names(new, 1, 40)
        self.assertIn("running", self.shoal(new, "scratch", "get", "job").text)
        self.assertIn(barrier, self.shoal(new, "barrier", "list").text)
        self.refused("shoal", "name", "get", "later", *connect, says="no such name")
        self.refused("shoal", "metadata", "restore", file, *connect, says="already")


if __name__ == "__main__":
    unittest.main()
