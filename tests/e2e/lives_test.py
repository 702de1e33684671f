"""Two processes that claim to be one superpeer: copies of its data_dir are refused, and which of them is
the superpeer does not change by starting the other one often."""
import re
import shutil
import unittest

import harness
import superpeers_test


class Lives(superpeers_test.Registry):
    """Three superpeers, and copies of the third one's folder."""

    def setUp(self):
        super().setUp()
        for node in self.superpeers:
            node.wait_ready()
        harness.ring_whole(self, self.superpeers)

    def copy(self, name):
        shutil.copytree(self.folder / "data2", self.folder / name)

    def start_on(self, folder, address):
        """A superpeer on that copy, which knows all addresses; not waited for."""
        self.starts += 1
        return harness.Node(self, f"{folder}-{self.starts}", "--roles", "superpeer", "--superpeers",
                            ",".join(self.addresses), "--listen", address, "--data-dir",
                            self.folder / folder, "--failure-ns", self.failure)

    def says(self, node, text):
        harness.eventually(self, f"{node.name} says {text!r}", harness.READY_MAX,
                           lambda: text in node.log())

    def holds_all(self, node):
        harness.eventually(self, f"{node.name} holds each shard", harness.READY_MAX,
                           lambda: re.search(r"the ring is whole\b.*\bcopies=3\b", node.log()))

    def test_a_refused_copy_stays_refused(self):
        self.superpeers[2].stop()
        for name in ("clone", "backup"):
            self.copy(name)
        for _ in range(2):
            self.superpeers[2] = self.start(2).wait_ready()
            self.holds_all(self.superpeers[2])
            self.superpeers[2].stop()
        for name in ("clone", "backup"):
            for _ in range(5):
                node = self.start_on(name, self.addresses[2])
                self.says(node, "this one is a clone or an old backup")
                node.kill()
        self.superpeers[2] = self.start(2).wait_ready()
        self.holds_all(self.superpeers[2])


if __name__ == "__main__":
    unittest.main()
