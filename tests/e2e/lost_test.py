"""Superpeers whose disks are lost, as real processes: an operator declares a disk lost."""
import re
import shutil
import unittest

import harness
import superpeers_test


class Lost(harness.Case):
    """Three superpeers, each with a folder, and names."""
    start = superpeers_test.SharedRegistry.start
    states = superpeers_test.SharedRegistry.states
    seen = superpeers_test.SharedRegistry.seen

    def setUp(self):
        super().setUp()
        self.addresses = superpeers_test.free_addresses(3)
        self.starts = 0
        self.superpeers = [self.start(i) for i in range(3)]

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
                     says="superpeer is up.*stop its process first")
        self.refused("shoal", "node", "lost", 9, "--connect", self.addresses[0],
                     says="no superpeer with that ID")
        self.refused("shoal", "node", "lost", 64, "--connect", self.addresses[0],
                     says="does not have the role")
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


if __name__ == "__main__":
    unittest.main()
