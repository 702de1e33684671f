"""The disk of a backup gets full: it takes no zone more, others take its place, what it has it goes on with as the log's cleaner makes
room, and writes are acknowledged all the while."""
import os
import unittest

import harness

# The log leaves 64 MiB of a disk to others, and has a ring of 16 MiB beside its segments.
DISK = "mount -t tmpfs -o size=120m,mode=755 none {folder}"
PEER = ("--store-bytes-max", "64MiB", "--chunk-bytes-max", "1MiB", "--zone-bytes", "1MiB", "--log-segment-bytes", "256KiB",
        "--replicas-at", "peers", "--replicas", 2)
CHUNK = 600_000  # a zone has no room for two of them
# A slow machine must not take a peer for dead in the middle.
FAILURE = ("--failure-ns", "20s")


class FullDisk(harness.Case):
    def log_info(self, peer):
        return self.shoal_json(self.superpeer, "log", "info", peer.nid)

    def complete(self, at_least):
        """Waits until there are so many zones, and all of them have all backups."""
        def is_complete():
            zones = self.shoal_json(self.superpeer, "status")["zones"]
            self.assertEqual(zones["lost"], 0)
            return zones["all"] >= at_least and not zones["under_replicated"]

        harness.eventually(self, "all zones have all backups", harness.READY_MAX, is_complete)

    def zones_of(self, owner):
        """An owner's zones, each with its backups: their states by node."""
        return {zone["zone"]: {backup["node"]: backup["state"] for backup in zone["backups"]}
                for zone in self.log_info(owner)["own"]}

    def put(self, cid):
        self.shoal(self.superpeer, "chunk", "put", cid, "--raw", stdin=os.urandom(CHUNK))

    def fill(self, folder, node):
        """Leaves no room on the disk of a node, which alone sees it in that folder."""
        disk = f"/proc/{node.process.pid}/root{folder}"
        with open(f"{disk}/ballast", "wb") as ballast:
            room = os.statvfs(disk)
            os.posix_fallocate(ballast.fileno(), 0, room.f_bavail * room.f_frsize)
        self.assertEqual(os.statvfs(disk).f_bavail, 0)

    def kept_at(self, client, backup, peers):
        """Writes chunks at these peers until one of them is kept at that backup: its owner, ID and zone, of which it has all."""
        for number in range(8):
            for owner in peers:
                cid = client.do("create", CHUNK, owner.nid)
                self.put(cid)
                zone, backups = sorted(self.zones_of(owner).items())[number]
                if backup.nid in backups:
                    return owner, cid, zone
        return self.fail("no zone is at that backup")

    def test_backup(self):
        folder, prefix = self.mounted("small", DISK)
        self.superpeer = harness.Node(self, "superpeer", "--roles", "superpeer", "--data-dir",
                                      self.folder / "superpeer", *FAILURE).wait_ready()
        begin = ("--superpeers", self.superpeer.address, "--durability", "durable", *PEER, *FAILURE)
        small = harness.Node(self, "small", *begin, "--data-dir", folder, prefix=prefix)
        peers = [harness.Node(self, f"peer{number}", *begin, "--data-dir", self.folder / f"peer{number}")
                 for number in range(3)]
        for peer in (small, *peers):
            peer.wait_ready()
        self.complete(4)
        client = harness.Client(self, [self.superpeer.address])
        owner, first, zone = self.kept_at(client, small, peers)
        self.complete(4)
        before = self.zones_of(owner)
        self.fill(folder, small)
        cleaned = self.log_info(small)["metrics"]["log_slots_cleaned"]
        for number in range(12):
            self.put(first)
            if number < 4:
                self.put(client.do("create", CHUNK, owner.nid))
        client.do("sync")
        self.complete(len(before) + 2)
        after = self.zones_of(owner)
        # It has what it had, all of it; the segments that it writes to were made free by the cleaner.
        self.assertEqual(after[zone], before[zone])
        said = next(row for row in self.log_info(owner)["own"] if row["zone"] == zone)
        kept = next(row for row in self.log_info(small)["zones"] if row["zone"] == zone)
        self.assertGreaterEqual(kept["durable"], said["acked_durable"])
        self.assertGreater(said["acked_durable"], 12)
        self.assertGreater(self.log_info(small)["metrics"]["log_slots_cleaned"], cleaned)
        # Others have what came since.
        new = {name: set(backups) for name, backups in after.items() if name not in before}
        others = {peer.nid for peer in peers if peer is not owner}
        self.assertGreater(len(new), 1)
        self.assertEqual(new, {name: others for name in new})
        self.assertIsNone(small.process.poll())
        states = {row["nid"]: row["state"] for row in
                  self.shoal_json(self.superpeer, "node", "list")["nodes"]}
        self.assertEqual(states[small.nid], "up")
        self.assertNotRegex(small.log(), "out of service|operation failed")
        self.assertLessEqual(small.log().count("the disk is full: replicas wait in memory until there is room"), 1)
        small.stop()
        for peer in peers:  # an orderly stop of the last ones may wait for backups that have gone
            peer.kill()


if __name__ == "__main__":
    unittest.main()
