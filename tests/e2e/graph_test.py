"""Graphs: loading and traversing through the programs, compared with known and computed results."""
import collections
import gzip
import os
import random
import re
import subprocess
import unittest

import harness

WORDNET = harness.DATA / "wordnet"


def expected_levels(sense, root):
    """The level histogram that data/wordnet/expected.txt gives, and edges_from_reached."""
    for line in (WORDNET / "expected.txt").read_text().splitlines():
        if line.startswith(f"bfs {sense} root {root} "):
            levels = [int(count) for count in re.findall(r"\b\d+:(\d+)", line)]
            return levels, int(re.search(r"edges_from_reached (\d+)", line).group(1))
    raise AssertionError(f"no expected {sense} traversal from {root}")


def traverse(edges, root, undirected):
    """A slow, obvious breadth-first search: (counts by level, edges leaving reached vertices). An
    edge from a vertex to itself counts only where the direction does, as in the published results
    for WordNet."""
    out = collections.defaultdict(set)
    for source, target in edges:
        if undirected and source == target:
            continue
        out[source].add(target)
        if undirected:
            out[target].add(source)
    level = {root: 0}
    queue = collections.deque([root])
    while queue:
        vertex = queue.popleft()
        for neighbour in out[vertex]:
            if neighbour not in level:
                level[neighbour] = level[vertex] + 1
                queue.append(neighbour)
    counts = collections.Counter(level.values())
    return ([counts[depth] for depth in range(len(counts))],
            sum(len(out[vertex]) for vertex in level))


# Nothing fails here, and a sanitizer on a busy machine may keep a process from its core for seconds:
# that must not pass for a failure, after which a load ends with the connection.
PATIENT = {"SHOAL_PEER_SILENCE_NS": "60s", "SHOAL_FAILURE_NS": "60s"}


class Wordnet(harness.Case):
    ENVIRONMENT = PATIENT

    def test_levels_from_three_roots_in_both_senses(self):
        node, _ = self.cluster(3)
        self.shoal(node, "graph", "load", WORDNET / "wordnet.e.tsv.zst", "--vertices",
                   WORDNET / "wordnet.v.tsv.zst", "--types")
        self.assertIn("city metropolis urban_center",
                      self.shoal(node, "graph", "vertex", "46303").text)
        for root in (46303, 1, 58830):
            for sense in ("directed", "undirected"):
                flags = ["--undirected"] if sense == "undirected" else []
                found = self.shoal_json(node, "graph", "bfs", str(root), *flags)
                levels, edges = expected_levels(sense, root)
                self.assertEqual(found["levels"], levels, f"{sense} from {root}")
                self.assertEqual(found["root"], root)
                self.assertEqual(found["reached"], sum(levels))
                self.assertEqual(found["edges_traversed"], edges)
                self.assertGreater(found["seconds"], 0)
                self.assertGreater(found["teps"], 0)


class Random(harness.Case):
    """Random graphs with awkward vertex names, against the obvious search."""
    ENVIRONMENT = PATIENT

    def test_random_graphs(self):
        seed = int(os.environ.get("E2E_SEED", random.randrange(2**32)))
        print(f"E2E_SEED={seed}", flush=True)
        draw = random.Random(seed)
        node, _ = self.cluster(3)
        for round_number in range(4):
            names = [0, 2**64 - 1] + [draw.randrange(2**64) for _ in range(draw.randrange(1, 300))]
            edges = [(draw.choice(names), draw.choice(names))
                     for _ in range(draw.randrange(1, 900))]
            text = "# random\n% also a comment\n\n" + "".join(
                f"{source}{draw.choice(' 	')}{target}\n" for source, target in edges)
            path = self.write(f"edges{round_number}", text)
            self.shoal(node, "graph", "load", path, *(["--replace"] if round_number else []))
            for root in draw.sample([edge[0] for edge in edges], min(5, len(edges))):
                for undirected in (False, True):
                    flags = ["--undirected"] if undirected else []
                    found = self.shoal_json(node, "graph", "bfs", str(root), *flags)
                    levels, traversed = traverse(edges, root, undirected)
                    self.assertEqual((found["levels"], found["edges_traversed"]),
                                     (levels, traversed), f"seed {seed} root {root} {flags}")


class Files(harness.Case):
    ENVIRONMENT = PATIENT

    def test_plain_gz_and_zst_give_the_same(self):
        node, _ = self.cluster(2)
        edges = [(i, (i * 7 + 1) % 5000) for i in range(5000)]
        text = "".join(f"{source} {target}\r\n" for source, target in edges).encode()
        packed = [self.write("plain", text), self.write("any.gz", gzip.compress(text)),
                  # The format is told by the first bytes, not by the name.
                  self.write("named.txt", gzip.compress(text))]
        try:
            packed.append(self.write("any.zst", subprocess.run(
                ["zstd", "-q", "-c"], input=text, capture_output=True, check=True).stdout))
        except FileNotFoundError:
            pass  # Without the zstd program, WordNet's files are the test of zst.
        levels, _ = traverse(edges, 1, False)
        for number, path in enumerate(packed):
            self.shoal(node, "graph", "load", path, *(["--replace"] if number else []))
            self.assertEqual(self.shoal_json(node, "graph", "bfs", "1")["levels"], levels, path)

    def test_second_load_is_refused_and_harmless(self):
        node, _ = self.cluster(1)
        self.shoal(node, "graph", "load", self.write("first", "1 2\n2 3\n"))
        second = self.write("second", "1 9\n")
        self.refused("shoal", "graph", "load", second, "--connect", node.address, says="exist")
        self.assertEqual(self.shoal_json(node, "graph", "bfs", "1")["levels"], [1, 1, 1])


if __name__ == "__main__":
    unittest.main()
