"""Graphs whose chunks move, and whose peers are killed: the same traversals have the same results."""
import json
import threading
import time
import unittest

import graph_test
import harness

WORDNET = graph_test.WORDNET
ROOT = 46303


class Moves(harness.Case):
    ENVIRONMENT = graph_test.PATIENT

    def load(self, node):
        self.shoal(node, "graph", "load", WORDNET / "wordnet.e.tsv.zst", "--vertices",
                   WORDNET / "wordnet.v.tsv.zst", "--types")

    def answers(self, node, senses=("directed", "undirected")):
        """Whether the graph is all there, and answers as its publisher says."""
        for sense in senses:
            flags = ["--undirected"] if sense == "undirected" else []
            found = harness.eventually(self, "all vertices are found", 300, lambda: self.asked(node, *flags))
            levels, edges = graph_test.expected_levels(sense, ROOT)
            self.assertEqual((found["levels"], found["edges_traversed"]), (levels, edges))

    def asked(self, node, *flags):
        """What a traversal says; none while peers look for vertices still, which takes long on a slow machine."""
        done = self.run_program("shoal", "graph", "bfs", ROOT, *flags, "--json", "--connect", node.address)
        if done.returncode:
            self.assertRegex(done.problem + done.text, "looking for more|peers know that look for one")
            return None
        return json.loads(done.text)

    def is_whole(self, node):
        self.answers(node)
        self.assertIn("city metropolis urban_center", self.shoal(node, "graph", "vertex", ROOT).text)
        status = self.shoal_json(node, "graph", "status")
        self.assertTrue(status["all"]["loaded"])
        self.assertEqual(status["all"]["vertices"], status["all"]["graph_vertices"])
        return {row["nid"]: row["vertices"] for row in status["nodes"]}

    def test_drained_and_stopped(self):
        node, (one, two) = self.cluster(2)
        self.load(node)
        before = self.is_whole(node)
        three = self.peer("three", node)  # one that has never heard of the graph
        moved = self.shoal_json(node, "drain", one.nid, "--to", three.nid)
        self.assertGreaterEqual(moved["chunks"], before[one.nid])
        after = self.is_whole(node)
        self.assertEqual(after, {one.nid: 0, two.nid: before[two.nid], three.nid: before[one.nid]})
        self.shoal(node, "node", "stop", one.nid)
        self.is_whole(node)
        # Some of them come back, and the graph goes, wherever it is.
        self.shoal(node, "migrate", three.nid, "--to", two.nid, "--last", f"{one.nid}:5000")
        self.is_whole(node)
        self.shoal(node, "graph", "drop")
        for peer in (two, three):
            self.assertEqual(self.shoal_json(node, "chunk", "list", peer.nid)["chunks"], 0)

    def test_traversed_while_chunks_move(self):
        node, peers = self.cluster(3)
        self.load(node)
        ends = threading.Event()
        problems = []

        def move():
            turn = 0
            while not ends.is_set() or turn < 2:
                source, target = peers[turn % 3], peers[(turn + 1) % 3]
                done = self.run_program("shoal", "migrate", source.nid, "--to", target.nid,
                                        "--connect", node.address)
                if done.returncode:
                    problems.append(done.problem)
                    return
                turn += 1

        mover = threading.Thread(target=move)
        mover.start()
        self.addCleanup(mover.join)
        self.addCleanup(ends.set)
        for _ in range(6):
            self.answers(node)
        ends.set()
        mover.join()
        self.assertEqual(problems, [])
        self.is_whole(node)

    def test_dropped_while_chunks_move(self):
        node, peers = self.cluster(3)
        for turn in range(3):
            self.load(node)
            source, target = peers[turn % 3], peers[(turn + 1) % 3]
            done = []
            mover = threading.Thread(target=lambda: done.append(self.run_program(
                "shoal", "migrate", source.nid, "--to", target.nid, "--connect", node.address)))
            mover.start()
            self.addCleanup(mover.join)
            self.shoal(node, "graph", "drop")
            mover.join()
            harness.eventually(self, "all vertices go", 30, lambda: sum(
                self.shoal_json(node, "chunk", "list", peer.nid)["chunks"] for peer in peers) == 0)
            self.assertFalse(self.shoal_json(node, "graph", "status")["all"]["loaded"])

    def test_killed_and_started_again(self):
        superpeer = self.superpeer("superpeer", "--data-dir", self.folder / "registry")
        flags = ["--replicas", "1", "--replicas-at", "self"]

        def start(index):
            self.starts += 1
            return self.peer(f"peer{index}-{self.starts}", superpeer, *flags, "--data-dir",
                             self.folder / f"data{index}")

        self.starts = 0
        peers = [start(0), start(1), start(2)]
        self.load(superpeer)
        before = self.is_whole(superpeer)
        peers[1].kill()
        # Asked before the peer is back, a traversal waits for it.
        done = []
        asker = threading.Thread(target=lambda: done.append(self.run_program(
            "shoal", "graph", "bfs", ROOT, "--json", "--connect", superpeer.address)))
        asker.start()
        self.addCleanup(asker.join)
        harness.eventually(self, "the superpeer declares the peer failed", harness.READY_MAX, lambda: any(
            row["state"] == "failed" for row in self.shoal_json(superpeer, "node", "list")["nodes"]))
        self.assertTrue(asker.is_alive())
        peers[1] = start(1)
        asker.join()
        self.assertEqual(done[0].returncode, 0, done[0].problem)
        self.assertEqual(json.loads(done[0].text)["levels"], graph_test.expected_levels("directed", ROOT)[0])
        self.assertEqual(self.is_whole(superpeer), before)
        # Chunks of one are at another when that is killed.
        self.shoal(superpeer, "migrate", peers[0].nid, "--to", peers[1].nid)
        moved = self.is_whole(superpeer)
        self.assertEqual(moved[peers[0].nid], 0)
        peers[1].kill()
        peers[1] = start(1)
        self.assertEqual(self.is_whole(superpeer), moved)
        # A cold start of all.
        for peer in peers:
            peer.kill()
        peers = [start(0), start(1), start(2)]
        self.assertEqual(self.is_whole(superpeer), moved)
        self.shoal(superpeer, "graph", "load", self.write("edges", "1 2\n2 3\n"), "--replace")
        self.assertEqual(self.shoal_json(superpeer, "graph", "bfs", 1)["levels"], [1, 1, 1])

    def test_killed_without_replicas(self):
        """What is lost is said at once: while the peer counts as up, and when it has failed, after the time that a vertex on its way is waited for."""
        superpeer, peers = self.cluster(3)
        self.load(superpeer)
        peers[1].kill()
        begun = time.monotonic()
        done = self.run_program("shoal", "graph", "bfs", ROOT, "--connect", superpeer.address)
        self.assertIn(done.returncode, {harness.FAILED, harness.NO_CLUSTER})  # the latter if the peer counts as up
        self.assertRegex(done.problem, f"peer {peers[1].nid}:|vertices are served now")
        harness.eventually(self, "the superpeer declares the peer failed", harness.READY_MAX, lambda: any(
            row["state"] == "failed" for row in self.shoal_json(superpeer, "node", "list")["nodes"]))
        self.refused("shoal", "graph", "bfs", ROOT, "--connect", superpeer.address, says="vertices are served now")
        self.refused("shoal", "graph", "vertex", 2**60, "--connect", superpeer.address, says="vertices are served now")
        print(f"three refusals in {time.monotonic() - begun:.2f} s")
        self.assertLess(time.monotonic() - begun, 20)


if __name__ == "__main__":
    unittest.main()
