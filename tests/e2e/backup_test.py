"""Safety copies: of a cluster that is written to, interrupted, damaged, brought back into new clusters and into ones that have something."""
import json
import os
import shutil
import struct
import subprocess
import threading
import time
import unittest

import harness
import logs

PIECE = 1 << 31


def records(path):
    """Chunks of a file of chunks, by ID. Blocks are not checked here: `shoal backup verify` does that."""
    content, at, found = path.read_bytes(), 128, {}
    while at < len(content):
        magic, _, _, size, kind, _, _ = struct.unpack_from("<4sIQIIII", content, at)
        assert magic == b"shcb", path
        at += 32
        end = at + size
        while kind == 1 and at < end:
            cid, size = struct.unpack_from("<QI", content, at)
            at += 12
            if size & PIECE:
                offset, count = struct.unpack_from("<II", content, at)
                at += 8
                assert offset == len(found.get(cid, b"")), path
                found[cid] = found.get(cid, b"") + content[at:at + count]
                at += count
            else:
                assert cid not in found, path
                found[cid] = content[at:at + size]
                at += size
        at = end
    return found


def number_of(cid):
    node, local = cid.split(":")
    return int(node) << 48 | int(local)


class Writer(threading.Thread):
    """Writes rising numbers into its chunks, one after the other, each once the one before is acknowledged."""

    def __init__(self, test, node, nid, count):
        super().__init__()
        self.client = harness.Client(test, [node.address])
        self.cids = [self.client.do("create", 16, nid) for _ in range(count)]
        self.number, self.failure = 0, None
        self.ends = threading.Event()

    def run(self):
        while not self.ends.is_set() and not self.failure:
            self.number += 1
            cid = self.cids[self.number % len(self.cids)]
            answer = self.client.ask("put", cid, f"{self.number:016}")
            self.failure = None if answer == "ok" else answer

    def check(self, test, found):
        """What a copy has is what was there after one of the writes."""
        seen = [int(found[number_of(cid)].strip(b"\0") or b"0") for cid in self.cids]
        last = max(seen)
        for at, number in enumerate(seen):
            back = (last - at) % len(self.cids)
            test.assertEqual(number, max(last - back, 0), f"{self.cids[at]} after write {last}")
        return last


class Case(harness.Case):
    def start(self, count, name, *flags):
        """A new cluster; returns (node to ask, peers)."""
        superpeer = self.superpeer(f"superpeer-{name}", "--data-dir", self.folder / f"registry-{name}")
        return superpeer, [self.peer(f"{name}{i}", superpeer, *flags) for i in range(count)]

    def stop(self, superpeer, peers):
        for node in [*peers, superpeer]:
            node.stop()

    def create(self, node, nid, count, size):
        self.shoal(node, "chunk", "create", size, "--count", count, "--node", nid)

    def save(self, node, folder, *flags):
        return self.shoal_json(node, "backup", "save", self.folder / folder, *flags)

    def restore(self, node, folder, *flags):
        return self.shoal_json(node, "backup", "restore", self.folder / folder, *flags)

    def backup_refused(self, node, *words, says, status=1):
        return self.refused("shoal", "backup", *words, "--connect", node.address, says=says,
                            status=status)

    def chunks(self, node):
        return sum(row.get("chunks", 0) for row in self.shoal_json(node, "status")["nodes"])

    def popen(self, node, *words):
        process = subprocess.Popen(
            [str(harness.BIN / "shoal"), *map(str, words), "--connect", node.address],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=harness.clean_environment(),
            cwd=self.folder)
        self.addCleanup(process.wait)
        return process

    def killed_when(self, process, is_time):
        """Kills it as soon as is_time says so. False: it was over before."""
        deadline = time.monotonic() + harness.COMMAND_MAX
        while process.poll() is None and not is_time():
            self.assertLess(time.monotonic(), deadline)
        was_killed = process.poll() is None
        process.kill()
        process.wait()
        return was_killed


class WhileWritten(Case):
    def test_each_peer_is_of_one_moment(self):
        node, (one, two) = self.start(2, "peer")
        writers = []
        for peer in (one, two):
            for _ in range(2):
                writers.append((peer.nid, Writer(self, node, peer.nid, 20)))
                self.create(node, peer.nid, 60000, 100)
        for _, writer in writers:
            writer.start()
        lasts = []
        for i in range(4):
            saved = self.save(node, f"copy{i}")
            self.assertEqual(saved["chunks"], 240000 + 80)
            self.shoal(node, "backup", "verify", self.folder / f"copy{i}")
            found = {peer.nid: records(self.folder / f"copy{i}" / f"node-{peer.nid}.copy")
                     for peer in (one, two)}
            lasts.append([writer.check(self, found[nid]) for nid, writer in writers])
        for _, writer in writers:
            writer.ends.set()
            writer.join()
            self.assertIsNone(writer.failure)
        for before, after in zip(lasts, lasts[1:]):
            self.assertTrue(all(a < b for a, b in zip(before, after)), lasts)

    def test_chunks_that_move_are_not_lost(self):
        node, (one, two) = self.start(2, "peer")
        self.create(node, one.nid, 20000, 64)
        self.shoal(node, "migrate", one.nid, "--to", two.nid, "--first", f"{one.nid}:101", "--last",
                   f"{one.nid}:300")
        ends = threading.Event()

        def move():
            while not ends.is_set():
                for source, target in ((one.nid, two.nid), (two.nid, one.nid)):
                    self.run_program("shoal", "migrate", source, "--to", target, "--first",
                                     f"{one.nid}:1000", "--last", f"{one.nid}:2000", "--connect",
                                     node.address)
                ends.wait(0.2)
        mover = threading.Thread(target=move)
        mover.start()
        complete = 0
        for i in range(6):
            done = self.run_program("shoal", "backup", "save", self.folder / f"copy{i}", "--connect",
                                    node.address)
            if done.returncode:
                self.assertIn("chunks move from node to node all the time", done.problem)
                continue
            complete += 1
            found = set()
            for peer in (one, two):
                found |= set(records(self.folder / f"copy{i}" / f"node-{peer.nid}.copy"))
            self.assertEqual(len(found), 20000)
        ends.set()
        mover.join()
        saved = self.save(node, "copy")
        self.assertGreaterEqual(saved["chunks"], 20000)
        self.stop(node, (one, two))
        node, _ = self.start(2, "new")
        restored = self.restore(node, "copy")
        self.assertEqual(restored["made"], 20000)
        self.assertEqual(self.shoal_json(node, "chunk", "list", one.nid)["chunks"], 20000)


class Interrupted(Case):
    def fill(self, node, peers):
        """Chunks of all sizes; returns samples, by ID."""
        samples = {}
        for peer in peers:
            self.create(node, peer.nid, 30000, 200)
            for i, size in enumerate((0, 1, 1300, 40000, 300000, 3000000)):
                content = os.urandom(size)
                path = self.write("content", content)
                text = self.shoal(node, "chunk", "create", "--file", path, "--node", peer.nid).text
                cid = text.split()[0]
                samples[cid] = content
                self.shoal(node, "name", "set", f"sample/{peer.nid}/{i}", cid)
        return samples

    def holds(self, node, samples):
        for cid, content in samples.items():
            self.assertEqual(self.shoal(node, "chunk", "get", cid, "--raw").stdout, content, cid)
        self.assertEqual(len(self.shoal_json(node, "name", "list", "sample/")["names"]), len(samples))

    def test_killed_and_gone_on(self):
        node, peers = self.start(3, "peer")
        samples = self.fill(node, peers)
        count = self.chunks(node)
        folder = self.folder / "copy"
        for i in range(20):  # it may be over before it is killed
            shutil.rmtree(folder, ignore_errors=True)
            process = self.popen(node, "backup", "save", folder)
            first = folder / f"node-{peers[0].nid}.copy"
            if self.killed_when(process, first.exists) and not (folder / "manifest.json").exists():
                break
            self.assertLess(i, 19)
        self.backup_refused(node, "verify", folder, says="(?s)is not complete.*run `shoal backup save`")
        self.backup_refused(node, "restore", folder, says="(?s)is not complete")
        before = first.stat().st_mtime_ns
        saved = self.save(node, "copy")
        self.assertGreaterEqual(saved["kept"], 1)
        self.assertEqual(saved["chunks"], count)
        self.assertEqual(saved["names"], len(samples))
        self.assertEqual(first.stat().st_mtime_ns, before)
        self.assertEqual(self.shoal_json(node, "backup", "verify", folder)["chunks"], count)
        self.assertEqual(sorted(path.suffix for path in folder.iterdir()),
                         [".copy"] * 4 + [".json"] * 2)
        self.backup_refused(node, "save", folder, says="(?s)complete safety copy.*new folder")
        self.stop(node, peers)

        node, peers = self.start(3, "new")
        for i in range(20):
            process = self.popen(node, "backup", "restore", folder)
            self.killed_when(process, lambda: self.chunks(node) > 0)
            if self.chunks(node) < count:
                break
        restored = self.restore(node, "copy")
        self.assertEqual(restored["made"] + restored["same"], count)
        self.assertGreater(restored["same"], 0)
        self.assertEqual(self.chunks(node), count)
        self.holds(node, samples)
        again = self.restore(node, "copy")
        self.assertEqual((again["made"], again["same"], again["names_same"]),
                         (0, count, len(samples)))
        # New chunks get other IDs than those that were restored.
        cid = self.shoal(node, "chunk", "create", 8, "--node", peers[0].nid).text.split()[0]
        self.assertGreater(int(cid.split(":")[1]), 30000)

    def test_a_damaged_file_is_written_anew(self):
        node, peers = self.start(2, "peer")
        self.create(node, peers[0].nid, 5000, 100)
        self.create(node, peers[1].nid, 5000, 100)
        folder = self.folder / "copy"
        self.save(node, "copy")
        (folder / "manifest.json").unlink()
        file = folder / f"node-{peers[1].nid}.copy"
        content = bytearray(file.read_bytes())
        content[20000] ^= 4
        file.write_bytes(content)
        (folder / "names.copy").unlink()
        self.assertEqual(self.save(node, "copy")["kept"], 1)
        self.shoal(node, "backup", "verify", folder)
        # A peer that was started again may have got chunks meanwhile: its file does not hold.
        (folder / "manifest.json").unlink()
        peers[0].stop()
        third = self.peer("third", node)
        self.create(node, third.nid, 10, 100)
        self.assertEqual(self.save(node, "copy")["nodes"], 3)


class Refused(Case):
    def test_damage_is_found_and_nothing_is_restored(self):
        node, peers = self.start(1, "peer")
        nid = peers[0].nid
        self.create(node, nid, 20000, 100)
        self.shoal(node, "name", "set", "first", f"{nid}:1")
        folder = self.folder / "copy"
        self.save(node, "copy")
        self.stop(node, peers)
        node, peers = self.start(1, "new")
        file, names = folder / f"node-{nid}.copy", folder / "names.copy"
        content = file.read_bytes()
        flipped = content[:300000] + bytes([content[300000] ^ 1]) + content[300001:]
        older = content[:24] + bytes([9]) + content[25:]
        for damaged, says in ((flipped, f"checksum.*|node-{nid}.copy at byte 2[0-9]*: the checksum of a block"),
                              (content[:-100], "ends too early|the file ends here"),
                              (older, "checksum of the file's header"),
                              (content + b"x", "more behind the end"), (b"", "does not begin")):
            file.write_bytes(damaged)
            self.backup_refused(node, "verify", folder, says=says)
            self.backup_refused(node, "restore", folder, says=says)
            self.assertEqual(self.chunks(node), 0)
        file.unlink()
        self.backup_refused(node, "verify", folder, says="missing")
        file.write_bytes(content)
        kept = names.read_bytes()
        names.unlink()
        self.backup_refused(node, "restore", folder, says="names.copy is missing")
        names.write_bytes(kept)
        manifest = (folder / "manifest.json").read_text()
        (folder / "manifest.json").write_text(manifest.replace('"chunks":20000', '"chunks":20001'))
        self.backup_refused(node, "verify", folder, says="is not the file that manifest.json names")
        (folder / "manifest.json").write_text(manifest[:-9])
        self.backup_refused(node, "verify", folder, says="manifest.json")
        (folder / "manifest.json").write_text(manifest)
        self.assertEqual(self.restore(node, "copy")["made"], 20000)

    def test_conflicts(self):
        node, (one, two) = self.start(2, "peer")
        big = b"b" * 100000
        for peer in (one, two):
            for content in ("small", big):
                path = self.write("content", content)
                self.shoal(node, "chunk", "create", "--file", path, "--node", peer.nid)
        self.shoal(node, "name", "set", "n", f"{one.nid}:1")
        self.save(node, "copy")
        self.shoal(node, "chunk", "put", f"{one.nid}:1", "--text", "other")
        folder = self.folder / "copy"
        for cid, size in ((f"{one.nid}:1", None), (f"{two.nid}:1", 7), (f"{two.nid}:2", 50000),
                          (f"{one.nid}:2", None)):
            if size is not None:
                self.shoal(node, "chunk", "resize", cid, size)
            elif cid.endswith(":2"):
                self.shoal(node, "chunk", "put", cid, "--text", "x", "--offset", "70000")
            self.backup_refused(node, "restore", folder, says=f"(?s)has other bytes.*--overwrite")
            skipped = self.restore(node, "copy", "--skip")
            self.assertEqual(skipped["skipped"] + skipped["same"], 4, cid)  # large ones are not compared
            self.assertGreaterEqual(skipped["skipped"], 1, cid)
            replaced = self.restore(node, "copy", "--overwrite")
            self.assertEqual(replaced["replaced"] + replaced["same"], 4)
            self.assertGreaterEqual(replaced["replaced"], 1)
            for peer in (one, two):
                self.assertEqual(
                    self.shoal(node, "chunk", "get", f"{peer.nid}:1", "--raw").stdout, b"small")
                self.assertEqual(
                    self.shoal(node, "chunk", "get", f"{peer.nid}:2", "--raw").stdout, big)
        self.shoal(node, "name", "set", "n", f"{two.nid}:1")
        self.backup_refused(node, "restore", folder, says="the name \"n\" is another chunk's")
        self.assertEqual(self.restore(node, "copy", "--skip")["names_skipped"], 1)
        self.assertEqual(self.restore(node, "copy", "--overwrite")["names_replaced"], 1)
        self.assertIn(f"{one.nid}:1", self.shoal(node, "name", "get", "n").text)
        self.backup_refused(node, "restore", folder, "--skip", "--overwrite", says="exclude", status=2)

    def test_what_is_wrong_is_said(self):
        node, (one, two) = self.start(2, "peer")
        self.create(node, one.nid, 10, 8)
        self.create(node, two.nid, 10, 8)
        content = os.urandom(200000)
        path = self.write("content", content)
        named = self.shoal(node, "chunk", "create", "--file", path, "--node", two.nid).text.split()[0]
        self.shoal(node, "name", "set", "named", named)
        self.write("file", "x")
        (self.folder / "other").mkdir()
        self.write("other/x", "x")
        self.backup_refused(node, "save", self.folder / "other", says="is not empty")
        self.backup_refused(node, "save", self.folder / "file", says="file")
        self.backup_refused(node, "save", self.folder / "a" / "b", says="a/b")
        self.backup_refused(node, "restore", self.folder / "nowhere", says="(?s)nowhere.*check the path")
        self.backup_refused(node, "verify", self.folder / "other", says="no safety copy")
        self.save(node, "copy")
        begun = json.loads((self.folder / "copy" / "begun.json").read_text())
        begun["cluster"] = "another"
        (self.folder / "foreign").mkdir()
        self.write("foreign/begun.json", json.dumps(begun))
        self.backup_refused(node, "save", self.folder / "foreign", says="of the cluster \"another\"",
                            status=3)
        self.stop(node, (one, two))
        node, (one,) = self.start(1, "new")
        self.backup_refused(node, "restore", self.folder / "copy",
                            says=f"(?s)no peer that is up has the ID {two.nid}.*as many peers")
        self.assertEqual(self.chunks(node), 0)
        # Chunks of the one that is missing get new IDs.
        ids = self.folder / "ids"
        spread = self.restore(node, "copy", "--spread", ids)
        self.assertEqual((spread["made"], spread["spread"]), (10, 11))
        pairs = dict(line.split() for line in ids.read_text().splitlines())
        self.assertEqual(len(pairs), 11)
        self.assertEqual(self.shoal(node, "chunk", "get", pairs[named], "--raw").stdout, content)
        self.assertIn(pairs[named], self.shoal(node, "name", "get", "named").text)
        self.assertEqual(self.chunks(node), 21)
        # Again, as after an interruption that cut the last line: that chunk is made once more, and no other.
        ids.write_text(ids.read_text()[:-3])
        spread = self.restore(node, "copy", "--spread", ids, "--overwrite")
        self.assertEqual((spread["same"], spread["spread"]), (10, 11))
        self.assertEqual(self.chunks(node), 22)
        again = dict(line.split() for line in ids.read_text().splitlines())
        self.assertEqual(sum(pairs[old] != new for old, new in again.items()), 1)
        self.write("wrong", "64:1 and more\n")
        self.backup_refused(node, "restore", self.folder / "copy", "--spread", self.folder / "wrong",
                            says="wrong")

    def test_a_failed_peer(self):
        superpeer = self.superpeer("superpeer", "--failure-ns", "1s")
        one, two = [self.peer(f"peer{i}", superpeer, "--failure-ns", "1s") for i in range(2)]
        self.create(superpeer, one.nid, 10, 8)
        two.kill()
        client = harness.Client(self, [superpeer.address])
        harness.eventually(self, "it counts as failed", harness.READY_MAX,
                           lambda: client.states().get(two.nid) == "failed")
        self.backup_refused(superpeer, "save", self.folder / "copy",
                            says=f"(?s)node {two.nid}: its chunks would be missing.*--partial")
        saved = self.save(superpeer, "copy", "--partial")
        self.assertEqual((saved["nodes"], saved["chunks"]), (1, 10))


class Logged(logs.LogCase):
    """Peers with logs: what is restored is on their disks when the command ends."""

    def test_restored_chunks_survive(self):
        peer = self.start_on("data")
        client = self.client()
        expected = {}
        for i in range(300):
            text = f"chunk-{i}-" + "x" * (i * 17 % 3000)
            expected[client.do("create", len(text), peer.nid)] = text
        for cid, text in expected.items():
            client.do("put", cid, text)
        large = client.do("create", 400000, peer.nid)
        client.do("name", "large", large)
        saved = self.shoal_json(self.superpeer, "backup", "save", self.folder / "copy")
        self.assertEqual(saved["chunks"], 301)
        for cid in list(expected)[::2]:
            client.do("remove", cid)
        client.do("remove", large)
        restored = self.shoal_json(self.superpeer, "backup", "restore", self.folder / "copy")
        self.assertEqual((restored["made"], restored["same"]), (151, 150))
        peer.kill()
        self.start_on("data")
        client = self.client()
        self.holds(client, expected)
        self.assertEqual(client.do("size", large), "400000")


if __name__ == "__main__":
    unittest.main()
