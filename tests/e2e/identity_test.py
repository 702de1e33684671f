"""Who a node is: peers that are gone are forgotten, by an operator's word or by themselves."""
import re
import unittest

import harness


class Forget(harness.Case):
    """A superpeer with a folder, and peers."""

    def start(self, *flags):
        superpeer = harness.Node(self, "superpeer", "--roles", "superpeer", "--data-dir",
                                 self.folder / "superpeer", "--failure-ns", "1s", *flags)
        return superpeer.wait_ready()

    def peer(self, name, superpeer, *flags):
        return harness.Node(self, name, "--superpeers", superpeer.address, "--failure-ns", "1s",
                            *flags).wait_ready()

    def states(self, node):
        return {row["nid"]: row["state"] for row in self.shoal_json(node, "node", "list")["nodes"]}

    def seen(self, node, nid, state):
        harness.eventually(self, f"node {nid} is {state}", harness.READY_MAX,
                           lambda: self.states(node).get(nid) == state)

    def create(self, node, peer):
        answer = self.shoal(node, "chunk", "create", "--node", peer.nid, "--text", "here")
        return re.search(r"\d+:\d+", answer.text).group(0)

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
        self.forget(superpeer, two.nid, "0 names of its chunks remain, and [1-9]")

    def test_they_go_by_themselves(self):
        superpeer = self.start("--forget-ns", "2s")
        one, two = self.peer("one", superpeer), self.peer("two", superpeer)
        one.kill()
        two.stop()
        harness.eventually(self, "both are forgotten", harness.READY_MAX,
                           lambda: self.states(superpeer).keys() == {superpeer.nid})


if __name__ == "__main__":
    unittest.main()
