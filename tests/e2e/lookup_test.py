"""Where chunks are, asked through the programs: before and after they move, and when their node is gone."""
import json
import unittest

import harness


class Lookup(harness.Case):
    def tree(self, node, nid):
        found = self.shoal_json(node, "lookup", "tree", nid)
        self.assertEqual(found["nid"], nid)
        self.assertLess(found["superpeer"], 64)
        return [(entry["first"], entry["last"], entry["owner"]) for entry in found["ranges"]]

    def test_chunks_that_moved(self):
        node, (one, two) = self.cluster(2)
        a, b = one.nid, two.nid
        end = f"{a}:{2**48 - 1}"
        self.shoal(node, "chunk", "create", 64, "--count", 100, "--node", a)
        self.assertEqual(self.tree(node, a), [(f"{a}:0", end, a)])
        self.shoal(node, "migrate", a, "--to", b, "--first", f"{a}:10", "--last", f"{a}:19")
        self.assertEqual(self.tree(node, a), [(f"{a}:0", f"{a}:9", a), (f"{a}:10", f"{a}:19", b),
                                              (f"{a}:20", end, a)])
        found = self.shoal_json(node, "lookup", f"{a}:15")
        self.assertEqual(found["cid"], f"{a}:15")
        self.assertEqual((found["first"], found["last"], found["owner"]), (f"{a}:10", f"{a}:19", b))
        self.assertIn(f"node {b}", self.shoal(node, "lookup", f"{a}:15").stdout.decode())
        self.assertIn(f"{a}:19", self.shoal(node, "lookup", "tree", a).stdout.decode())
        # A drain takes all, and what nobody has used yet stays with its creator.
        self.shoal(node, "drain", a, "--to", b)
        self.assertEqual(self.shoal_json(node, "lookup", f"{a}:100")["owner"], b)
        self.shoal(node, "node", "stop", a)
        self.assertEqual(self.shoal_json(node, "lookup", f"{a}:1")["owner"], b)
        self.assertIn(b, {owner for _, _, owner in self.tree(node, a)})

    def test_called_wrongly(self):
        node, (one,) = self.cluster(1)
        to = ("--connect", node.address)
        self.refused("shoal", "lookup", "x", *to, says="not a chunk ID", status=2)
        self.refused("shoal", "lookup", "1:1", *to, says="chunk does not exist", status=1)
        self.refused("shoal", "lookup", "tree", one.nid + 900, *to, says="no such node", status=1)
        done = self.run_program("shoal", "lookup", "tree", 1, "--json", *to)
        self.assertEqual(json.loads(done.text)["error"], "SHOAL_EROLE")


if __name__ == "__main__":
    unittest.main()
