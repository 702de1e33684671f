"""shoal log: a log of replicas in a folder is looked at while no node has it."""
import json
import os
import subprocess
import unittest

import harness
import logs

SLOT_BYTES = 64 << 10
SLOTS_AT = 4096 + 256 * 4096


class Log(harness.Case):
    def made(self, name="replicas.log"):
        """A log as tests/e2e/log_maker.c says, which nobody has open."""
        folder = self.folder / "log"
        done = self.run_program("e2e_log", folder, name)
        self.assertEqual(done.returncode, 0, done.problem)
        self.before = (folder / name).read_bytes()
        self.addCleanup(self.assert_untouched, folder / name)
        return folder

    def assert_untouched(self, path):
        if path.exists():
            self.assertEqual(path.read_bytes(), self.before, "a look has changed the log")

    def log(self, *words, status=harness.OK):
        done = self.run_program("shoal", "log", *words)
        self.assertEqual(done.returncode, status, f"{words}: {done.problem}{done.text}")
        return done.text

    def log_json(self, *words, status=harness.OK):
        return json.loads(self.log(*words, "--json", status=status))

    def flip(self, folder, offset, name="replicas.log"):
        """Flips a bit of the file, for good."""
        flip(folder / name, offset)
        self.before = (folder / name).read_bytes()

    def test_info(self):
        folder = self.made()
        info = self.log_json("info", folder)
        for key, expected in (("format", 2), ("cluster", 4711), ("node", 66), ("slots", 80),
                              ("slot_bytes", SLOT_BYTES), ("damaged", 0), ("torn", 0),
                              ("primary_bytes", 256 * 4096)):
            self.assertEqual(info[key], expected, key)
        self.assertEqual(info["slots_used"] + info["slots_free"], 80)
        first, second = info["zones"]
        self.assertEqual((first["zone"], first["owner"], first["incarnation"]), ("64:1", 64, 1))
        self.assertEqual((first["first"], first["last"], first["whole"]), (0, 251, 252))
        self.assertEqual(first["lives"], [{"life": 1, "first": 0}])
        self.assertGreaterEqual(first["entries"], 254)
        self.assertGreater(first["versions_tuples"], 0)
        self.assertEqual((second["zone"], second["whole"]), ("65:2", 3))
        self.assertEqual(sum(zone["slots"] for zone in info["zones"]), info["slots_used"])
        text = self.log("info", folder)
        self.assertIn("Log of node 66 in the cluster 4711, format 2", text)
        self.assertRegex(text, r"\n64:1 +64 +1 .* 252 +1\n65:2 ")

    def test_segments(self):
        folder = self.made()
        segments = self.log_json("segments", folder)["segments"]
        self.assertEqual({row["kind"] for row in segments}, {"entries", "versions"})
        self.assertEqual({row["state"] for row in segments}, {"whole"})
        self.assertEqual({row["zone"] for row in segments}, {"64:1"})
        for row in segments:
            self.assertLessEqual(row["filled_bytes"], SLOT_BYTES)
        text = self.log("segments", folder, "--zone", "64:1")
        self.assertEqual(len(text.splitlines()), 1 + len(segments))
        self.refused("shoal", "log", "segments", folder, "--zone", "64:3",
                     says="the log has nothing of that zone")

    def test_dump(self):
        folder = self.made()
        rows = [json.loads(line) for line in
                self.log("dump", folder, "--zone", "64:1", "--json").splitlines()]
        newest = {row["chunk"]: row for row in rows if row["standing"] == "current"}
        self.assertEqual(len(newest), 201)
        for local in range(1, 201):
            row = newest[f"64:{local}"]
            self.assertEqual(row["removal"], local == 7)
            fill = "" if local == 7 else ("22" if local <= 50 else "11") * 16
            self.assertEqual((row["first_bytes"], row["size"]), (fill, 0 if local == 7 else 500))
        old = [row for row in rows if row["standing"] == "superseded"]
        self.assertEqual({row["chunk"] for row in old}, {f"64:{local}" for local in range(1, 51)})
        self.assertEqual({row["first_bytes"][:2] for row in old}, {"11", "22"})
        pieces = {row["piece"]: row for row in rows if row["chunk"] == "64:300"}
        end = 0
        for number in range(len(pieces)):
            row = pieces[number]
            self.assertEqual((row["offset"], row["total"], row["pieces"]), (end, 40000, len(pieces)))
            end += row["size"]
        self.assertEqual(end, 40000)
        # A pair has one number, and zeros have no bytes.
        rows = [json.loads(line) for line in
                self.log("dump", folder, "--zone", "65:2", "--json").splitlines()]
        number = {row["chunk"]: row["sequence"] for row in rows}
        self.assertEqual(number, {"65:1": 0, "64:1000": 1, "64:1001": 2, "65:2": 2})
        self.assertEqual({row["chunk"] for row in rows if row["with_next"]}, {"64:1001"})
        zeros = {row["chunk"]: (row["size"], row["first_bytes"]) for row in rows if row["zeros"]}
        self.assertEqual(zeros, {"65:2": (100, "")})
        self.assertEqual({row["standing"] for row in rows}, {"current"})
        self.assertEqual(self.log("dump", folder, "--zone", "65:2", "--chunk", "65:2")
                         .splitlines()[-1].split()[-1], "zeros")
        one = self.log("dump", folder, "--zone", "65:2", "--chunk", "64:1000").splitlines()
        self.assertEqual(len(one), 2)
        self.assertRegex(one[1], r"^64:1000 +1\.0 current .* 10 +1 .*(66){10}$")
        self.assertEqual(self.log("dump", folder, "--zone", "64:1", "--chunk", "64:7")
                         .splitlines()[-1].split()[-1], "removed")

    def test_verify(self):
        folder = self.made()
        self.assertRegex(self.log("verify", folder), r"^Read \d+ entries of 2 zones .*: no damage, 0 torn")
        # In the first span of slot 0.
        self.flip(folder, SLOTS_AT + 4096 + 300)
        text = self.log("verify", folder, status=harness.FAILED)
        self.assertIn(f"slot 0, offset {SLOTS_AT + 4096}, zone 64:1: fails its checksum, and had been "
                      "on the disk", text)
        self.assertIn(": 1 damaged places, 0 torn.", text)
        seen = self.log_json("verify", folder, status=harness.FAILED)
        self.assertEqual((seen["damaged"], seen["places"][0]["what"]), (1, "damaged"))
        self.assertEqual(self.log_json("segments", folder)["segments"][0]["state"], "damaged")
        self.assertIn("shoal log verify", self.log("info", folder))
        # The head of slot 1.
        self.flip(folder, SLOTS_AT + SLOT_BYTES + 12)
        seen = self.log_json("verify", folder, status=harness.FAILED)
        self.assertEqual({(place["what"], place["slot"]) for place in seen["places"]},
                         {("damaged", 0), ("head", 1)})

    def test_refused(self):
        self.refused("shoal", "log", "info", self.folder / "none", says="there is no folder .*none")
        self.assertFalse((self.folder / "none").exists())
        self.refused("shoal", "log", "info", self.folder, says="has no file replicas.log.*\n.*--file")
        self.write("replicas.log", b"")
        self.refused("shoal", "log", "verify", self.folder, says="is empty: no log was made in it yet")
        self.write("replicas.log", b"something else" * 1000)
        self.refused("shoal", "log", "verify", self.folder, says="is no log, or its first block is damaged")
        folder = self.made("zones.log")
        self.refused("shoal", "log", "info", folder, says="has no file replicas.log")
        self.log("info", folder, "--file", "zones.log")
        self.refused("shoal", "log", "info", folder, "--file", "../zones.log", status=harness.USAGE,
                     says="not the name of a file")
        self.refused("shoal", "log", "verify", folder, "--rate", "1MiB", status=harness.USAGE,
                     says="--rate is for a node")
        self.refused("shoal", "log", "dump", folder, status=harness.USAGE, says="it needs --zone")
        self.refused("shoal", "log", "dump", folder, "--zone", "x", status=harness.USAGE,
                     says="is no zone")
        self.refused("shoal", "log", "dump", folder, "--file", "zones.log", "--zone", "64:1",
                     "--chunk", "x", status=harness.USAGE, says="is no chunk ID")

    def test_another_format(self):
        folder = self.made()
        head = bytearray(self.before[:4096])
        head[18] += 1
        head[4:8] = crc32c(head[8:64]).to_bytes(4, "little")
        (folder / "replicas.log").write_bytes(bytes(head) + self.before[4096:])
        self.before = (folder / "replicas.log").read_bytes()
        for command in "info", "verify":
            self.refused("shoal", "log", command, folder,
                         says=r"is a log in another format than this version's \(2\)(.|\n)*"
                              "begins a new log, without its replicas, once the file is removed")

    def test_in_use(self):
        folder = self.folder / "used"
        maker = subprocess.Popen([str(harness.BIN / "e2e_log"), str(folder), "replicas.log"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 env=harness.clean_environment())
        self.addCleanup(maker.wait)
        self.addCleanup(maker.stdin.close)
        self.addCleanup(maker.stdout.close)
        self.assertEqual(maker.stdout.readline(), b"made\n")
        self.refused("shoal", "log", "info", folder, says="a node, or another command, uses .*used")
        maker.stdin.close()
        self.assertEqual(maker.wait(harness.STOP_MAX), 0)
        self.log("info", folder)

    def test_for_reading_alone(self):
        folder = self.made()
        os.chmod(folder / "replicas.log", 0o400)
        os.chmod(folder, 0o500)
        self.addCleanup(os.chmod, folder, 0o700)
        self.log("verify", folder)


class OfNode(harness.Case):
    """What nodes that run say of their logs."""

    SIZE = 2000

    def begin(self, peers=2):
        """A superpeer, and peers that back each other up."""
        self.superpeer_node = harness.Node(self, "superpeer", "--roles", "superpeer", "--data-dir",
                                           self.folder / "superpeer").wait_ready()
        self.peers = [
            harness.Node(self, f"peer{i}", "--superpeers", self.superpeer_node.address, "--data-dir",
                         self.folder / f"peer{i}", "--replicas", "1", "--replicas-at", "peers",
                         *logs.SMALL).wait_ready() for i in range(peers)]
        return [peer.nid for peer in self.peers]

    def info(self, nid):
        return self.shoal_json(self.superpeer_node, "log", "info", nid)

    def write_durable(self, nid, count):
        client = harness.Client(self, [self.superpeer_node.address])
        client.do("level", "replicated")
        harness.eventually(self, "a backup is found", harness.READY_MAX,
                           lambda: client.ask("create", 8, nid).startswith("ok"))
        for _ in range(count):
            client.do("put", client.do("create", self.SIZE, nid), "x" * self.SIZE)
        client.do("level", "durable")
        client.do("put", client.do("create", self.SIZE, nid), "x" * self.SIZE)
        return count + 1

    def test_info_and_segments(self):
        owner, backup = self.begin()
        before = self.info(backup)["metrics"]
        chunks = self.write_durable(owner, 200)
        own = self.info(owner)
        kept = self.info(backup)
        zones = [zone for zone in own["own"] if zone["live_bytes"]]
        self.assertEqual(own["node"], owner)
        self.assertEqual(sum(zone["live_bytes"] for zone in zones), own["metrics"]["own_live_bytes"])
        self.assertGreaterEqual(own["metrics"]["own_live_bytes"], chunks * self.SIZE)
        self.assertGreaterEqual(own["metrics"]["own_writes"], chunks)
        self.assertLessEqual(own["metrics"]["own_zones"], len(own["own"]))
        for zone in zones:
            self.assertEqual(zone["wanted"], 1)
            self.assertEqual([(at["node"], at["state"], at["why"]) for at in zone["backups"]],
                             [(backup, "streaming", None)])
        self.assertTrue(all(zone["acked_durable"] <= zone["acked_replicated"] <= zone["next"]
                            for zone in zones))
        for name, least in (("kept_entries", chunks), ("kept_bytes", chunks * self.SIZE),
                            ("log_append_bytes", chunks * self.SIZE), ("log_appends", chunks),
                            ("log_syncs", 1), ("log_primary_writes", 1)):
            self.assertGreaterEqual(kept["metrics"][name] - before[name], least, name)
        self.assertGreaterEqual(kept["derived"]["amplification"], 1)
        self.assertGreater(kept["derived"]["primary_write_mean_bytes"], 0)
        self.assertGreaterEqual(kept["metrics"]["log_primary_write_largest_bytes"],
                                kept["derived"]["primary_write_mean_bytes"])
        self.assertGreater(kept["metrics"]["log_primary_padding_bytes"], 0)
        self.assertGreaterEqual(own["metrics"]["own_acks"], 1)
        self.assertGreater(own["derived"]["own_ack_mean_ns"], 0)
        self.assertGreaterEqual(own["metrics"]["own_ack_longest_ns"], own["derived"]["own_ack_mean_ns"])
        self.assertGreaterEqual(own["metrics"]["own_streams"], len(zones))
        self.assertGreater(own["metrics"]["own_credit_bytes"], own["metrics"]["own_in_flight_bytes"])
        self.assertEqual((own["metrics"]["own_waiting_bytes"], own["metrics"]["own_resent_bytes"]), (0, 0))
        self.assertAlmostEqual(
            kept["derived"]["amplification"],
            sum(kept["derived"]["amplification_" + by]
                for by in ("primary", "entries", "survivors", "versions", "heads")), 6)
        self.assertGreaterEqual(kept["metrics"]["kept_zones_open"], len(zones))
        kept_zones = {zone["zone"]: zone for zone in kept["zones"]}
        for zone in zones:
            at = kept_zones[zone["zone"]]
            self.assertEqual((at["owner"], at["written"]), (owner, 1))
            self.assertGreaterEqual(at["durable"], zone["acked_durable"])
        text = self.shoal(self.superpeer_node, "log", "info", backup).text
        self.assertRegex(text, rf"^Log of node {backup}, ")
        self.assertRegex(text, rf"(?m)^{owner}:\d+ +{owner} ")
        self.segments_fit(backup)

    def segments_fit(self, nid):
        """The segments are those that `info` counts, while nothing is written."""
        def look():
            return self.info(nid), self.shoal_json(self.superpeer_node, "log", "segments", nid)["segments"]

        info, segments = look()
        again = look()
        while (info["zones"], segments) != (again[0]["zones"], again[1]):
            (info, segments), again = again, look()
        slots = [segment["slot"] for segment in segments]
        self.assertGreater(len(slots), 0)
        self.assertEqual(len(slots), len(set(slots)))
        self.assertEqual(len(slots), info["metrics"]["log_slots"] - info["metrics"]["log_slots_free"])
        for zone in info["zones"]:
            mine = [segment for segment in segments if segment["zone"] == zone["zone"]]
            self.assertEqual((len(mine), sum(segment["filled_bytes"] for segment in mine)),
                             (zone["slots"], zone["bytes"]))
            self.assertEqual(mine, self.shoal_json(self.superpeer_node, "log", "segments", nid,
                                                   "--zone", zone["zone"])["segments"])
        self.assertLessEqual({segment["kind"] for segment in segments},
                             {"entries", "versions", "survivors"})

    def largest(self, owner):
        """The zone of that owner with most bytes, and the backup that takes its writes, or 0."""
        zone = max(self.info(owner)["own"], key=lambda zone: zone["live_bytes"])
        return zone["zone"], next((at["node"] for at in zone["backups"] if at["state"] == "streaming"), 0)

    def test_scrub_verify_and_dump(self):
        owner = self.begin(peers=3)[0]
        chunks = self.write_durable(owner, 60)
        zone, backup = self.largest(owner)
        at = self.superpeer_node
        # Each chunk is there, as it was written last.
        dump = self.shoal(at, "log", "dump", backup, "--zone", zone, "--json")
        rows = [json.loads(line) for line in dump.text.splitlines()]
        current = [row for row in rows if row["standing"] == "current" and row["size"] == self.SIZE]
        self.assertEqual(len({row["chunk"] for row in current}), chunks)
        self.assertEqual({row["first_bytes"] for row in current if not row["zeros"]}, {"78" * 16})
        self.assertIn("All writes before number", dump.problem)
        chunk = current[0]["chunk"]
        lines = self.shoal(at, "log", "dump", backup, "--zone", zone, "--chunk", chunk).text.splitlines()
        self.assertEqual(len(lines), 1 + sum(row["chunk"] == chunk for row in rows))
        self.assertTrue(all(line.startswith(chunk + " ") for line in lines[1:]))
        # Nothing is damaged.
        seen = self.shoal_json(at, "log", "verify", backup)
        self.assertEqual((seen["node"], seen["zone"], seen["damaged"], seen["places"]), (backup, None, 0, []))
        self.assertGreater(seen["slots"], 0)
        self.assertRegex(self.shoal(at, "log", "scrub", backup, "--zone", zone).text,
                         rf"^Read \d+ segments of node {backup}, .*: no damage")
        # A copy of a segment's head is damaged: the other one is enough.
        slot = next(segment["slot"] for segment in
                    self.shoal_json(at, "log", "segments", backup, "--zone", zone)["segments"]
                    if segment["kind"] == "entries")
        log = self.info(backup)["metrics"]
        begin = 4096 + log["log_primary_bytes"] + slot * log["log_slot_bytes"]
        folder = self.folder / f"peer{[peer.nid for peer in self.peers].index(backup)}"
        flip(folder / "replicas.log", begin + 20)
        done = self.run_program("shoal", "log", "verify", backup, "--zone", zone, "--connect", at.address)
        self.assertEqual(done.returncode, harness.FAILED, done.problem)
        self.assertIn(f"slot {slot}, offset {begin}, zone {zone}: a copy of the segment's head fails", done.text)
        self.assertEqual(self.shoal_json(at, "log", "scrub", backup)["damaged"], 1)
        # An entry is damaged: the owner has another replica made, on the third peer, and the segment is free then.
        flip(folder / "replicas.log", begin + 4096 + 300)
        seen = self.shoal_json(at, "log", "scrub", backup, "--rate", "16MiB")
        self.assertEqual({(place["what"], place["zone"], place["offset"], place["is_replaced"])
                          for place in seen["places"]},
                         {("head_copy", zone, begin, True), ("damaged", zone, begin + 4096, True)})
        self.assertEqual(self.largest(owner)[0], zone)
        self.assertNotEqual(self.largest(owner)[1], backup)
        self.assertEqual(self.shoal_json(at, "log", "scrub", backup)["places"], [])

    def test_looks_are_refused(self):
        superpeer, (peer,) = self.cluster(1)
        for command in ("scrub", "verify"):
            self.refused("shoal", "log", command, peer.nid, "--connect", superpeer.address,
                         says=f"node {peer.nid} has no log")
        self.refused("shoal", "log", "dump", peer.nid, "--zone", "64:1", "--connect", superpeer.address,
                     says="the node has no log")
        self.refused("shoal", "log", "verify", peer.nid, "--file", "x", status=harness.USAGE,
                     says="--file is for a folder")
        self.refused("shoal", "log", "scrub", "x", status=harness.USAGE, says="x")

    def test_its_folder_is_refused(self):
        _, backup = self.begin()
        for command in ("info", "segments", "verify"):
            self.refused("shoal", "log", command, self.folder / "peer1",
                         says="a node, or another command, uses .*\n.*stop the node first")
        self.refused("shoal", "log", "dump", self.folder / "peer1", "--zone", "64:1",
                     says="a node, or another command, uses")
        self.refused("shoal", "log", "info", backup, "--file", "x", status=harness.USAGE,
                     says="--file is for a folder")

    def test_without_a_log(self):
        superpeer, (peer,) = self.cluster(1)
        for nid in (peer.nid, 1):
            self.refused("shoal", "log", "info", nid, "--connect", superpeer.address,
                         says=f"node {nid} has no log")


def flip(path, offset):
    """Flips a bit of a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 4]))


def crc32c(data):
    """CRC32C (Castagnoli), bit by bit, as base/hash.h has it."""
    value = 0xffffffff
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82f63b78 if value & 1 else 0)
    return value ^ 0xffffffff


if __name__ == "__main__":
    unittest.main()
