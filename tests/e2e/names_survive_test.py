"""Names outlive the superpeers' processes, and a cluster: they are in the dumps of the peers."""
import json
import unittest

import harness
from superpeers_test import free_addresses

NAMES = {f"name/{i}": f"64:{i + 1}" for i in range(40)}


class Case(harness.Case):
    def give(self, node, names):
        for name, cid in names.items():
            self.shoal(node, "name", "set", name, cid)

    def listed(self, address):
        """The names as they are now; None: that can't be told."""
        done = self.run_program("shoal", "name", "list", "name/", "--json", "--connect", address)
        if done.returncode != 0:
            return None
        return {row["name"]: row["cid"] for row in json.loads(done.text)["names"]}


class AllSuperpeersKilled(Case):
    def test_names_and_barriers_are_there(self):
        addresses = free_addresses(3)

        def start(life):
            nodes = [harness.Node(self, f"superpeer{i}-{life}", "--roles", "superpeer",
                                  "--superpeers", ",".join(addresses), "--listen", addresses[i],
                                  "--data-dir", self.folder / f"data{i}", "--failure-ns", "1s")
                     for i in range(3)]
            for node in nodes:
                node.wait_ready()
            return nodes

        superpeers = start(0)
        self.give(superpeers[0], NAMES)
        barrier = self.shoal_json(superpeers[0], "barrier", "create", "3")["barrier"]
        for life in range(1, 3):
            for node in superpeers:
                node.kill()
            superpeers = start(life)
            harness.eventually(self, "the superpeers answer", 60,
                               lambda: self.listed(addresses[1]) is not None)
            self.assertEqual(self.listed(addresses[1]), NAMES)
            self.refused("shoal", "name", "set", "name/0", "64:99", "--absent", "--connect",
                         addresses[0], says="64:1")
            rows = self.shoal_json(superpeers[0], "barrier", "list")["barriers"]
            self.assertEqual([row["barrier"] for row in rows], [barrier])


class Dumps(Case):
    def cluster(self, life, peers=1):
        node = self.superpeer(f"superpeer{life}", "--data-dir", self.folder / f"registry{life}")
        for i in range(peers):  # new nodes of a new cluster, with the dumps of the old one
            (self.folder / f"data{i}" / "identity").unlink(missing_ok=True)
        return node, [self.peer(f"peer{life}-{i}", node, "--data-dir", self.folder / f"data{i}")
                      for i in range(peers)]

    def stop(self, node, peers):
        for peer in peers:
            peer.stop()
        node.stop()

    def test_dump_and_load(self):
        node, peers = self.cluster(0)
        self.shoal(node, "chunk", "create", "64", "--count", "100", "--node", "64")
        self.give(node, NAMES)
        self.assertEqual(self.shoal_json(node, "store", "dump", "64", "all")["chunks"], 101)
        self.refused("shoal", "chunk", "get", "64:0", "--connect", node.address, says="does not exist")
        self.shoal(node, "name", "remove", "name/9")
        # The names of a second dump are those of its own time.
        self.assertEqual(self.shoal_json(node, "store", "dump", "64", "later")["chunks"], 101)
        self.stop(node, peers)

        node, peers = self.cluster(1)
        # A name that is another chunk's by now stays that.
        self.shoal(node, "name", "set", "name/7", "64:99")
        self.shoal(node, "store", "load", "64", "all")
        names = dict(NAMES, **{"name/7": "64:99"})
        self.assertEqual(self.listed(node.address), names)
        self.refused("shoal", "chunk", "get", "64:0", "--connect", node.address, says="does not exist")
        # A load that is refused gives no names.
        self.shoal(node, "name", "remove", "name/8")
        del names["name/8"]
        self.refused("shoal", "store", "load", "64", "all", "--connect", node.address,
                     says="in use")
        self.assertEqual(self.listed(node.address), names)
        self.stop(node, peers)

        node, peers = self.cluster(2)
        self.shoal(node, "store", "load", "64", "later")
        self.assertEqual(self.listed(node.address),
                         {name: cid for name, cid in NAMES.items() if name != "name/9"})

    def test_a_dump_has_the_names_of_its_chunks(self):
        node, peers = self.cluster(0, 2)
        others = {f"name/other/{i}": f"65:{i + 1}" for i in range(10)}
        for nid in "64", "65":
            self.shoal(node, "chunk", "create", "64", "--count", "50", "--node", nid)
        self.give(node, dict(NAMES, **others))
        for nid in "64", "65":
            self.assertEqual(self.shoal_json(node, "store", "dump", nid, "all")["chunks"], 51)
        self.stop(node, peers)

        node, peers = self.cluster(1, 2)
        self.shoal(node, "store", "load", "65", "all")
        self.assertEqual(self.listed(node.address), others)
        self.shoal(node, "store", "load", "64", "all")
        self.assertEqual(self.listed(node.address), dict(NAMES, **others))

    def test_renamed_with_their_chunks(self):
        node, peers = self.cluster(0)
        self.shoal(node, "chunk", "create", "64", "--count", "50", "--node", "64")
        self.give(node, dict(NAMES, **{"name/elsewhere": "70:1"}))
        self.shoal(node, "store", "dump", "64", "all")
        self.stop(node, peers)

        node = self.superpeer("superpeer1", "--data-dir", self.folder / "registry1")
        self.peer("first", node)
        (self.folder / "data0" / "identity").unlink()
        self.peer("second", node, "--data-dir", self.folder / "data0")
        self.shoal(node, "store", "load", "65", "all", "--rename")
        self.assertEqual(self.listed(node.address),
                         {name: cid.replace("64:", "65:") for name, cid in NAMES.items()})


if __name__ == "__main__":
    unittest.main()
