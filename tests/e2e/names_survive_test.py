"""Names outlive the superpeers: they are in a chunk of the peers', and in its dumps."""
import json
import shutil
import signal
import unittest

import harness
from superpeers_test import free_addresses

NAMES = {f"name/{i}": f"64:{i + 1}" for i in range(40)}


class Case(harness.Case):
    def give(self, node):
        for name, cid in NAMES.items():
            self.shoal(node, "name", "set", name, cid)

    def listed(self, address):
        """The names as they are now; None: that can't be told."""
        done = self.run_program("shoal", "name", "list", "name/", "--json", "--connect", address)
        if done.returncode != 0:
            return None
        return {row["name"]: row["cid"] for row in json.loads(done.text)["names"]}

    def back(self, address, names):
        harness.eventually(self, "the names are back", 60, lambda: self.listed(address) == names)

    def held(self, node, peer):
        """Those of the names that are in the peer's chunk."""
        done = self.run_program("shoal", "chunk", "get", f"{peer.nid}:0", "--raw",
                                "--connect", node.address)
        return [name for name in NAMES if done.returncode == 0 and
                len(name).to_bytes(2, "little") + name.encode() in done.stdout]

    def written(self, node, peer, names=NAMES):
        """Waits until the peer's chunk has the names."""
        harness.eventually(self, "the names are in a chunk", 60,
                           lambda: set(names) <= set(self.held(node, peer)))


class AllSuperpeersLost(Case):
    def test_names_are_back(self):
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
        peers = [harness.Node(self, f"peer{i}", "--roles", "peer", "--superpeers",
                              ",".join(addresses), "--failure-ns", "1s").wait_ready()
                 for i in range(2)]
        self.give(superpeers[0])
        for peer in peers:  # Of two peers each has all names.
            self.written(superpeers[0], peer)
        for node in superpeers:
            node.kill()
        for i in range(3):
            shutil.rmtree(self.folder / f"data{i}")
        superpeers = start(1)
        self.back(addresses[1], NAMES)
        self.refused("shoal", "name", "set", "name/0", "64:99", "--absent", "--connect",
                     addresses[0], says="64:1")


class OneSuperpeer(Case):
    def test_dump_and_load(self):
        def start(life):
            node = self.superpeer(f"superpeer{life}", "--data-dir", self.folder / f"registry{life}")
            peer = self.peer(f"peer{life}", node, "--data-dir", self.folder / "data")
            return node, peer

        node, peer = start(0)
        self.shoal(node, "chunk", "create", "64", "--count", "100", "--node", "64")
        self.give(node)
        self.written(node, peer)
        self.assertEqual(self.shoal_json(node, "store", "dump", "64", "all")["chunks"], 101)
        peer.stop()
        node.stop()

        node, peer = start(1)
        # A name that is another chunk's by now stays that.
        self.shoal(node, "name", "set", "name/7", "64:99")
        self.written(node, peer, ["name/7"])
        self.shoal(node, "store", "load", "64", "all")
        names = dict(NAMES, **{"name/7": "64:99"})
        self.back(node.address, names)
        self.written(node, peer)
        # What is removed from now on stays so, also when the same names come once more.
        self.shoal(node, "name", "remove", "name/8")
        del names["name/8"]
        self.refused("shoal", "store", "load", "64", "all", "--connect", node.address,
                     says="in use")
        self.assertEqual(self.listed(node.address), names)
        self.refused("shoal", "chunk", "put", "64:0", "--text", "x", "--connect", node.address,
                     says="names")
        self.refused("shoal", "chunk", "remove", "64:0", "--connect", node.address,
                     says="invalid argument")

    def test_two_peers_have_each_name(self):
        node = self.superpeer("superpeer")
        peers = [self.peer(f"peer{i}", node) for i in range(2)]
        self.give(node)
        for peer in peers:
            self.written(node, peer)
        peers += [self.peer(f"peer{i}", node) for i in range(2, 5)]
        self.shoal(node, "name", "remove", "name/8")

        def are_two():
            """Others have forgotten theirs, also what was removed: it would be in their dumps."""
            copies = sorted(name for peer in peers for name in self.held(node, peer))
            return copies == sorted(2 * [name for name in NAMES if name != "name/8"])

        harness.eventually(self, "two peers have each name", 60, are_two)

    def test_who_was_away_is_heard_though_others_have_the_lists(self):
        address = free_addresses(1)[0]
        node = self.superpeer("before", "--listen", address)
        away = self.peer("away", node)
        self.give(node)
        self.written(node, away)
        away.process.send_signal(signal.SIGSTOP)
        try:
            node.kill()
            node = self.superpeer("after", "--listen", address)
            for i in range(3):
                self.peer(f"peer{i}", node)
            harness.eventually(self, "the new superpeer serves names", 60,
                               lambda: self.listed(address) == {})
            self.shoal(node, "name", "set", "name/3", "65:1")
        finally:
            away.process.send_signal(signal.SIGCONT)
        self.back(address, dict(NAMES, **{"name/3": "65:1"}))


if __name__ == "__main__":
    unittest.main()
