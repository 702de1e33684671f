"""The disk of a backup gets full: it takes no zone more, what it has it goes on with as far as cleaning makes room, others take its place,
writes are acknowledged all the while, and it says once what is the matter."""
import os
import shlex
import subprocess
import unittest

import harness

# As root, or as anybody where users may make namespaces.
NAMESPACES = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])
# The log leaves 64 MiB of a disk to others, and has a ring of 16 MiB beside its segments.
DISK = "mount -t tmpfs -o size=120m,mode=755 none {folder}"
PEER = ("--store-bytes-max", "64MiB", "--chunk-bytes-max", "1MiB", "--zone-bytes", "1MiB", "--log-segment-bytes", "256KiB",
        "--replicas-at", "peers", "--replicas", 2)
CHUNK = 600_000  # two of them fill a zone
# A slow machine must not take a peer for dead in the middle.
FAILURE = ("--failure-ns", "20s")


class FullDisk(harness.Case):
    def mounted(self):
        """A folder, and the words before a program that mount a small disk there, which only the program sees."""
        folder = self.folder / "small"
        folder.mkdir()
        script = DISK.format(folder=shlex.quote(str(folder)))
        for namespace in NAMESPACES:
            prefix = [*namespace, "sh", "-c", script + ' && exec "$@"', "sh"]
            if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
                return folder, prefix
        self.skipTest("no file system may be mounted here")

    def zones(self):
        return self.shoal_json(self.superpeer, "status")["zones"]

    def put(self, cid):
        self.shoal(self.superpeer, "chunk", "put", cid, "--raw", stdin=os.urandom(CHUNK))

    def test_backup(self):
        folder, prefix = self.mounted()
        self.superpeer = harness.Node(self, "superpeer", "--roles", "superpeer", "--data-dir",
                                      self.folder / "superpeer", *FAILURE).wait_ready()
        begin = ("--superpeers", self.superpeer.address, "--durability", "durable", *PEER, *FAILURE)
        small = harness.Node(self, "small", *begin, "--data-dir", folder, prefix=prefix)
        owner, other = (harness.Node(self, name, *begin, "--data-dir", self.folder / name)
                        for name in ("owner", "other"))
        for peer in (small, owner, other):
            peer.wait_ready()
        harness.eventually(self, "all zones have all backups", harness.READY_MAX, lambda:
                           self.zones()["all"] >= 3 and not self.zones()["under_replicated"])
        client = harness.Client(self, [self.superpeer.address])
        first = client.do("create", CHUNK, owner.nid)
        self.put(first)
        disk = f"/proc/{small.process.pid}/root{folder}"
        with open(f"{disk}/ballast", "wb") as ballast:
            room = os.statvfs(disk)
            os.posix_fallocate(ballast.fileno(), 0, room.f_bavail * room.f_frsize)
        self.assertEqual(os.statvfs(disk).f_bavail, 0)
        # Of the zone that the full disk has, and of others, which have to do without it.
        for _ in range(3):
            self.put(first)
            self.put(client.do("create", CHUNK, owner.nid))
        client.do("sync")
        zones = self.zones()
        self.assertGreater(zones["under_replicated"], 0)
        self.assertEqual(zones["lost"], 0)
        self.assertIsNone(small.process.poll())
        states = {row["nid"]: row["state"] for row in
                  self.shoal_json(self.superpeer, "node", "list")["nodes"]}
        self.assertEqual(states[small.nid], "up")
        self.assertNotRegex(small.log(), "out of service|operation failed")
        self.assertLessEqual(small.log().count("the disk is full: replicas wait in memory until there is room"), 1)
        small.stop()


if __name__ == "__main__":
    unittest.main()
