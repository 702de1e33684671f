"""Folders that no node can begin on: each program ends with 1, and says what to do."""
import unittest

import harness


# Commands of the shell that mount a file system at the folder.
TMPFS = "mount -t tmpfs -o size=64k,mode=755 none {folder}"
READ_ONLY = TMPFS + " && mount -o remount,ro {folder}"
FULL = TMPFS + " && head -c 65536 /dev/zero >{folder}/all && ! echo >{folder}/more 2>/dev/null"


class BadFolder(harness.Case):
    def ends(self, *flags, says, prefix=()):
        """A node with these flags ends with 1 before it is ready, and says each of these."""
        name = f"bad{len(list(self.folder.glob('bad*.log')))}"
        node = harness.Node(self, name, *flags, prefix=prefix)
        self.assertEqual(node.wait_end(harness.READY_MAX), harness.FAILED, node.log())
        for expected in says:
            self.assertRegex(node.log(), expected)

    def both_end(self, folder, prefix, superpeer_says, peer_says, hint):
        known = self.superpeer()
        self.ends("--roles", "superpeer", "--data-dir", folder, prefix=prefix,
                  says=(superpeer_says, rf"\n  hint: {hint}"))
        self.ends("--roles", "peer", "--superpeers", known.address, "--data-dir", folder,
                  prefix=prefix, says=(peer_says, rf"\n  hint: {hint}"))

    def test_read_only(self):
        folder, prefix = self.mounted("data", READ_ONLY)
        self.both_end(folder, prefix,
                      "the journal in data_dir can't be read or written: see to the disk, the folder's "
                      "permissions, and whether it is read-only",
                      "the file identity in data_dir, .*: see to the disk, the folder's permissions, "
                      "and whether it is read-only",
                      "check the device and the permissions")

    def test_full(self):
        folder, prefix = self.mounted("data", FULL)
        self.both_end(folder, prefix,
                      "no room for the journal in data_dir: free some, or choose another folder",
                      "the file identity in data_dir, .*: free some room, or choose another data_dir",
                      "free space or choose another folder")

    def test_file(self):
        says = f"data_dir {self.folder}/data: input or output failed"
        self.both_end(self.write("data", b""), (), says, says, "check the device and the permissions")

    def test_registry_of_an_older_version(self):
        folder = self.folder / "data"
        folder.mkdir()
        (folder / "raft.log").write_bytes(b"")
        self.ends("--roles", "superpeer", "--data-dir", folder,
                  says=("the registry of an older version of shoal, in the file raft.log: start that "
                        "version again, or remove the file: at all superpeers, which begins a new "
                        "registry, or at this one, which catches up from the others",
                        r"\n  hint: upgrade the older of the two programs"))
        self.assertTrue((folder / "raft.log").exists())


if __name__ == "__main__":
    unittest.main()
