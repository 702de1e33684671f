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

    def test_node_is_gone(self):
        node, (one, two) = self.cluster(2)
        moved, stays = (self.shoal(node, "chunk", "create", 8, "--node", one.nid).text.strip()
                        for _ in range(2))
        self.shoal(node, "migrate", one.nid, "--to", two.nid, "--first", moved, "--last", moved)
        two.kill()
        to = ("--connect", node.address)
        harness.promptly(self, "it is known to have failed", lambda: self.run_program(
            "shoal", "lookup", moved, *to).returncode == 1)
        self.refused("shoal", "chunk", "get", moved, *to, says=f"made on node {one.nid}, and may have moved")
        ranges = self.shoal_json(node, "lookup", "tree", one.nid)["ranges"]
        self.assertIn((two.nid, "failed"), {(entry["owner"], entry["state"]) for entry in ranges})
        self.assertRegex(self.shoal(node, "lookup", "tree", one.nid).text,
                         rf"(?m)^{moved} +{moved} +{two.nid}  failed$")
        one.kill()
        harness.promptly(self, "it is known to have failed", lambda: self.run_program(
            "shoal", "lookup", stays, *to).returncode == 1)
        self.refused("shoal", "chunk", "get", stays, *to, says=f"node {one.nid}, which made it")

    def test_nobody_to_ask(self):
        node, (one,) = self.cluster(1)
        client = harness.Client(self, [node.address], timeout_ns=1_000_000_000)
        client.do("nodes")
        cid = self.shoal(node, "chunk", "create", 8, "--node", one.nid).text.strip()
        node.kill()
        self.assertRegex(client.ask("get", cid), "^SHOAL_EUNREACHABLE no superpeer that knows")

    def test_counters(self):
        """`shoal status` counts what superpeers and peers were asked, and what came of it."""
        node, (one, two) = self.cluster(2)
        client = harness.Client(self, [node.address])

        def counted():
            status = self.shoal_json(node, "status")
            everything = status["all"]
            self.assertEqual(sum(row.get("lookups", 0) for row in status["nodes"]),
                             everything["lookups"])
            self.assertEqual(set(status["client"]), {
                "lookup_hits", "lookup_misses", "lookups_healed", "lookup_questions",
                "cached_ranges", "cache_bytes"})
            return tuple(everything[key] for key in ("lookups", "lookups_nobody", "misdirected"))

        before = counted()
        cid = client.do("create", 8, one.nid)
        client.do("put", cid, "it moves")
        for _ in range(5):
            client.do("get", cid)
        asked = tuple(now - then for now, then in zip(counted(), before))
        self.assertEqual(asked, (1, 0, 0))  # one range, one question
        before = counted()
        self.shoal(node, "migrate", one.nid, "--to", two.nid)
        self.assertEqual(client.do("get", cid), "it moves")
        healed = tuple(now - then for now, then in zip(counted(), before))
        self.assertEqual(healed, (1, 0, 1))  # the old owner says no, the superpeer where it is
        before = counted()
        harness.eventually(self, "nobody has it", 60, lambda: client.ask("get", "5000:1")
                           .startswith("SHOAL_ENOCHUNK"))
        self.assertGreaterEqual(counted()[1], before[1] + 1)
        text = self.shoal(node, "status").text
        self.assertRegex(text, r"lookups: \d+ answered by superpeers, \d+ of them with nobody")
        self.assertRegex(text, r"this client: \d+ found in its cache")

    def test_called_wrongly(self):
        node, (one,) = self.cluster(1)
        to = ("--connect", node.address)
        self.refused("shoal", "lookup", "x", *to, says="not a chunk ID", status=2)
        self.refused("shoal", "lookup", "1:1", *to, says="chunk does not exist", status=1)
        other = one.nid + 900 if one.nid < 50000 else one.nid - 900  # IDs end at 0xDFFF
        self.refused("shoal", "lookup", "tree", other, *to, says="no such node", status=1)
        done = self.run_program("shoal", "lookup", "tree", 1, "--json", *to)
        self.assertEqual(json.loads(done.text)["error"], "SHOAL_EROLE")


if __name__ == "__main__":
    unittest.main()
