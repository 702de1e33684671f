"""Dumps, loads and analyses through the programs: into new clusters, damaged, interrupted, killed."""
import os
import signal
import subprocess
import unittest

import harness

WORDNET = harness.DATA / "wordnet"


class Case(harness.Case):
    """Clusters of one peer, whose dumps outlive them."""

    def setUp(self):
        super().setUp()
        self.count = 0
        self.data = self.folder / "data"

    def start(self, *flags):
        """A new cluster, whose peer has the ID 64; returns (node to ask, peer)."""
        self.count += 1
        self.forget_identity()
        superpeer = self.superpeer(f"superpeer{self.count}", "--data-dir",
                                   self.folder / f"registry{self.count}")
        peer = self.peer(f"peer{self.count}", superpeer, *(flags or ("--data-dir", self.data)))
        self.assertEqual(peer.nid, 64)
        return superpeer, peer

    def forget_identity(self):
        """The folder's next peer is a new node, of whichever cluster."""
        (self.data / "identity").unlink(missing_ok=True)

    def files(self):
        return [name for name in os.listdir(self.data) if name != "identity"]

    def stop(self, superpeer, peer):
        peer.stop()
        superpeer.stop()

    def fill(self, node, count, size):
        self.shoal(node, "chunk", "create", size, "--count", count, "--node", "64")


class RoundTrip(Case):
    def test_graph_into_a_new_cluster(self):
        node, peer = self.start()
        self.shoal(node, "graph", "load", WORDNET / "wordnet.e.tsv.zst", "--vertices",
                   WORDNET / "wordnet.v.tsv.zst", "--types")
        levels = self.shoal_json(node, "graph", "bfs", "46303")["levels"]
        before = self.shoal_json(node, "store", "analyze", "64")
        ranges = self.shoal_json(node, "chunk", "list", "64")
        sample = [f"64:{local}" for local in range(1, before["chunks"], before["chunks"] // 50)]
        content = {cid: self.shoal(node, "chunk", "get", cid, "--raw").stdout for cid in sample}
        dumped = self.shoal_json(node, "store", "dump", "64", "graph")
        self.assertEqual(dumped["chunks"], before["chunks"])
        self.assertEqual((self.data / "graph.dump").stat().st_size, dumped["file_bytes"])
        self.stop(node, peer)

        node, peer = self.start()
        loaded = self.shoal_json(node, "store", "load", "64", "graph")
        for key in ("chunks", "payload_bytes", "file_bytes"):
            self.assertEqual(loaded[key], dumped[key])
        self.assertEqual(self.shoal_json(node, "chunk", "list", "64"), ranges)
        after = self.shoal_json(node, "store", "analyze", "64")
        for key in ("chunks", "payload_bytes", "packed", "long", "sizes", "exact_sizes",
                    "longest_used", "longest_free"):
            self.assertEqual(after[key], before[key], key)
        self.assertEqual(after["used_bytes"],
                         after["payload_bytes"] + sum(after["overhead"].values()))
        for cid in sample:
            self.assertEqual(self.shoal(node, "chunk", "get", cid, "--raw").stdout, content[cid])
        # The graph is there, too.
        self.assertEqual(self.shoal_json(node, "graph", "bfs", "46303")["levels"], levels)
        # Again: its IDs are in use, and nothing changes.
        self.refused("shoal", "store", "load", "64", "graph", "--connect", node.address,
                     says="(?s)exists already.*graph.dump at byte 32.*64:1", status=1)
        self.assertEqual(self.shoal_json(node, "chunk", "list", "64"), ranges)

    def test_renamed_for_a_peer_that_was_restarted(self):
        node, peer = self.start()
        self.shoal(node, "chunk", "create", "--text", "remember me")
        self.shoal(node, "store", "dump", "64", "kept")
        peer.stop()
        self.forget_identity()
        peer = self.peer("again", node, "--data-dir", self.data)
        self.assertNotEqual(peer.nid, 64)
        self.refused("shoal", "store", "load", peer.nid, "kept", "--connect", node.address,
                     says="(?s)another node created.*64:1.*--rename", status=1)
        self.shoal(node, "drain", peer.nid)
        self.refused("shoal", "store", "load", peer.nid, "kept", "--rename", "--connect",
                     node.address, says="being drained", status=1)
        self.shoal(node, "drain", peer.nid, "--undo")
        self.shoal(node, "store", "load", peer.nid, "kept", "--rename")
        self.assertEqual(self.shoal(node, "chunk", "get", f"{peer.nid}:1", "--raw").stdout,
                         b"remember me")
        # Once more: what is in the way is named as it is called here, not as in the file.
        self.refused("shoal", "store", "load", peer.nid, "kept", "--rename", "--connect",
                     node.address, says=f"(?s)ID is in use.*{peer.nid}:1", status=1)

    def test_up_and_down_keep_dumps(self):
        state = self.folder / "state"
        env = harness.clean_environment(SHOAL_STATE_DIR=state)

        def shoal(*words):
            done = self.run_program("shoal", *words, env=env)
            self.assertEqual(done.returncode, 0, done.problem)
            return done
        self.addCleanup(self.run_program, "shoal", "down", env=env)
        shoal("up", "1")
        shoal("chunk", "create", "--text", "hello")
        shoal("store", "dump", "64", "x")
        shoal("down")
        self.assertTrue((state / "peer1.data" / "x.dump").exists())
        shoal("up", "1")
        shoal("store", "load", "64", "x")
        self.assertIn("hello", shoal("chunk", "get", "64:1", "--text").text)
        shoal("down")
        self.assertEqual(sorted(path.name for path in state.rglob("*")), ["peer1.data", "x.dump"])


class Refused(Case):
    def test_what_is_wrong_is_said(self):
        node, peer = self.start()
        self.fill(node, 1000, 100)
        dumped = self.shoal_json(node, "store", "dump", "64", "good")
        before = self.shoal_json(node, "chunk", "list", "64")

        def refused(*words, says, status=1):
            self.refused("shoal", "store", *words, "--connect", node.address, says=says,
                         status=status)
        for name in ("../up", ".hidden", "a/b", "", "a b", "x" * 129):
            refused("dump", "64", name, says="name is 1 to 128 letters|at most 128")
        refused("load", "64", "none", says="none.dump")
        refused("dump", "65", "x", says="(?s)no such node.*65")
        refused("dump", "1", "x", says="does not have the role")
        refused("dump", "peer", "x", says="not a node ID", status=2)
        refused("dump", "64", says="needs NID NAME", status=2)
        refused("analyze", "peer", says="not a node ID", status=2)
        content = (self.data / "good.dump").read_bytes()
        self.assertEqual(len(content), dumped["file_bytes"])
        self.stop(node, peer)
        node, peer = self.start()
        for name, damaged, says in (
                ("torn", content[:-40], "ends too early|at byte"),
                ("flipped", content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
                 "(?s)checksum.*flipped.dump at byte 32: the checksum of a section"),
                ("longer", content + b"x", "at byte .*more behind the end"),
                ("no-dump", b"hello", "(?s)ends too early.*at byte 0"),
                ("empty", b"", "at byte 0")):
            (self.data / f"{name}.dump").write_bytes(damaged)
            refused("load", "64", name, says=says)
            self.assertEqual(self.shoal_json(node, "store", "analyze", "64")["chunks"], 0)
        self.shoal(node, "store", "load", "64", "good")
        self.assertEqual(self.shoal_json(node, "chunk", "list", "64"), before)

    def test_without_data_dir(self):
        node, _ = self.start("--data-dir", "")
        self.fill(node, 10, 100)
        self.refused("shoal", "store", "dump", "64", "x", "--connect", node.address,
                     says="data_dir", status=1)
        text = self.shoal(node, "store", "analyze", "64").text
        for word in ("10 chunks", "64 to 127", "table", "rounding", "64:10"):
            self.assertIn(word, text)

    def test_too_little_memory(self):
        node, peer = self.start()
        self.fill(node, 20000, 400)
        self.shoal(node, "store", "dump", "64", "x")
        self.stop(node, peer)
        node, peer = self.start("--data-dir", self.data, "--store-bytes-max", "4MiB")
        self.refused("shoal", "store", "load", "64", "x", "--connect", node.address,
                     says="out of chunk memory", status=1)
        self.assertEqual(self.shoal_json(node, "store", "analyze", "64")["chunks"], 0)


class CutOff(Case):
    """Dumps that do not come to their end."""

    CHUNKS = 100000

    def begin_dump(self, node, name):
        """A dump under way, of which a part is written; None when it was too fast."""
        temporary = self.data / f"{name}.dump.tmp"
        dump = subprocess.Popen([harness.BIN / "shoal", "store", "dump", "64", name, "--connect",
                                 node.address], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, env=harness.clean_environment())
        self.addCleanup(dump.stdout.close)
        self.addCleanup(dump.wait)
        self.addCleanup(dump.kill)
        while dump.poll() is None:
            try:
                if temporary.stat().st_size > 1000000:
                    return dump
            except FileNotFoundError:
                pass
        return None

    def test_killed_during_a_dump(self):
        node, peer = self.start()
        self.fill(node, 1000, 100)
        self.shoal(node, "store", "dump", "64", "x")
        old = (self.data / "x.dump").read_bytes()
        self.fill(node, self.CHUNKS, 400)
        for _ in range(20):
            dump = self.begin_dump(node, "x")
            if dump:
                peer.kill()
                break
            (self.data / "x.dump").write_bytes(old)
        self.assertIsNotNone(dump, "every dump was too fast")
        self.assertEqual((self.data / "x.dump").read_bytes(), old)
        self.assertTrue((self.data / "x.dump.tmp").exists())
        dump.kill()
        node.stop()
        # The old file is good, and the next dump cleans up.
        node, peer = self.start()
        self.assertEqual(self.shoal_json(node, "store", "load", "64", "x")["chunks"], 1000)
        self.shoal(node, "store", "dump", "64", "x")
        self.assertEqual((self.data / "x.dump").read_bytes(), old)
        self.assertEqual(self.files(), ["x.dump"])

    def test_stopped_during_a_dump(self):
        node, peer = self.start()
        self.fill(node, self.CHUNKS, 400)
        dump = self.begin_dump(node, "x")
        peer.stop()
        if dump:
            dump.wait(harness.COMMAND_MAX)
        # It was given up, or had come to its end; nothing half is left.
        self.assertIn(self.files(), ([], ["x.dump"]))

    def test_interrupted(self):
        node, _ = self.start()
        self.fill(node, self.CHUNKS, 400)
        for _ in range(20):
            dump = self.begin_dump(node, "x")
            if not dump:
                (self.data / "x.dump").unlink()
                continue
            dump.send_signal(signal.SIGINT)
            if dump.wait(harness.COMMAND_MAX) == 1:
                break
            (self.data / "x.dump").unlink()
        self.assertIn(b"canceled", dump.stdout.read())
        self.assertEqual(self.files(), [])
        self.shoal(node, "store", "dump", "64", "x")


if __name__ == "__main__":
    unittest.main()
