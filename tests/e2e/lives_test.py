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
            self.holds_all(node.wait_ready())

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

    def test_a_copy_beside_the_original(self):
        """The original stays, serves and leads on; the copy waits, and takes its place once that is gone."""
        other = self.superpeers[0]
        self.shoal(other, "name", "set", "before", "1:1")
        self.copy("beside")
        address = superpeers_test.free_addresses(1)[0]
        copy = self.start_on("beside", address)
        self.says(copy, "connected to another process of this superpeer")
        self.assertRegex(copy.log(), rf'other="{self.addresses[2]}" this_one="{address}"')
        for index, node in enumerate(self.superpeers):
            self.shoal(node, "name", "set", f"beside{index}", "1:2")
            states = self.states(node)
            self.assertEqual(states[self.addresses[2]], "up")
            self.assertNotIn(address, states)
        # Killed and started again, the original comes first, and as soon as ever.
        for _ in range(2):
            self.superpeers[2].kill()
            self.superpeers[2] = self.start(2).wait_ready()
            self.holds_all(self.superpeers[2])
        self.assertNotIn("this one is a clone", self.superpeers[2].log())
        self.assertNotIn(address, self.states(other))
        self.superpeers[2].stop()
        copy.kill()
        # The copy is behind the original now. One of the latest state is not.
        copy = self.start_on("beside", address)
        self.says(copy, "this one is a clone or an old backup")
        copy.kill()
        self.copy("latest")
        self.superpeers[2] = self.start_on("latest", address).wait_ready()
        self.seen(other, address, "up")
        self.holds_all(self.superpeers[2])

    def test_a_copy_takes_over(self):
        self.copy("beside")
        self.join("since")  # which the copy does not know
        self.shoal(self.superpeers[2], "name", "set", "since", "1:3")
        address = superpeers_test.free_addresses(1)[0]
        copy = self.start_on("beside", address)
        self.says(copy, "connected to another process of this superpeer")
        self.superpeers[2].stop()
        copy.wait_ready()
        self.seen(self.superpeers[0], address, "up")
        self.holds_all(copy)
        self.assertEqual(self.shoal(copy, "name", "get", "since").text, "1:3\n")
        former = self.start(2)
        self.says(former, "connected to another process of this superpeer")
        copy.stop()
        self.says(former, "this one is a clone or an old backup")


if __name__ == "__main__":
    unittest.main()
