"""Where a peer's log is, and how it is read and written: in its folder, through the page cache or around it, or on a file that is
used as a partition; with two levels or one. What was acknowledged is there after a kill, and no log is made over anything, nor
found in another place than it was."""
import concurrent.futures
import hashlib
import random
import re
import shlex
import shutil
import subprocess
import unittest

import harness
import logs
from log_test import crc32c

MIB = 1 << 20


class LogAccess(logs.LogCase):
    """Peers whose logs are in several places."""

    FLAGS = (*logs.SMALL, "--log-primary-bytes", "1MiB", "--log-buffer-bytes", "8MiB", "--replicas", "1")

    def device(self, name, size=64 * MIB, content=b"", at=0):
        """A file of that size, which is used as a partition: all zeros but for the content."""
        path = self.folder / name
        with open(path, "wb") as file:
            file.truncate(size)
            file.seek(at)
            file.write(content)
        return path

    def raw(self, path):
        return "--log-access", "raw", "--log-device", path

    def fill(self, nid, expected, luck, count=50):
        """Writes chunks at each level that survives a kill; expected: what is there then, by ID, None: nothing."""
        client = self.client()
        client.do("multi", 3, 300000, nid)  # first: a kill while it is under way ends it with an error
        self.write_some(client, nid, expected, luck, ("replicated", "durable"), count)

    def comes_back(self, *flags):
        """A peer with its chunks in its own log, killed between writes, and while a client writes, which goes on with the
        peer's next life."""
        luck = random.Random(harness.seed())
        peer, expected = self.start_on("data", *flags), {}
        nid = peer.nid
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            for number in range(4):
                known = len(expected)
                written = pool.submit(self.fill, nid, expected, luck)
                if number % 2:
                    harness.eventually(self, "chunks are written", harness.READY_MAX,
                                       lambda: len(expected) > known + 10)
                else:
                    written.result(harness.COMMAND_MAX)
                peer.kill()
                peer = self.start_on("data", *flags)
                self.assertEqual(peer.nid, nid)
                written.result(harness.COMMAND_MAX)
                self.holds(self.client(), expected)
        self.assertRegex(peer.log(), r"the log is open\b.*\bchunks=[1-9]")
        peer.stop()
        self.verified(self.folder / "data")
        return nid

    def info(self, word):
        done = self.run_program("shoal", "log", "info", word, "--json")
        self.assertEqual(done.returncode, 0, done.problem + done.text)
        return harness.json.loads(done.text)

    def verified(self, word):
        done = self.run_program("shoal", "log", "verify", word)
        self.assertEqual(done.returncode, 0, done.problem + done.text)
        self.assertRegex(done.text, "no damage")

    def untouched(self, path, *attempt):
        """Calls the attempt, which must leave the file as it is."""
        before = hashlib.sha256(path.read_bytes()).digest()
        attempt[0](*attempt[1:])
        self.assertEqual(hashlib.sha256(path.read_bytes()).digest(), before, f"{path} has changed")

    # --- What was acknowledged comes back --------------------------------------------------------

    def test_raw_two_levels(self):
        path = self.device("disk")
        nid = self.comes_back(*self.raw(path))
        self.assertEqual(path.stat().st_size, 64 * MIB)
        self.assertFalse((self.folder / "data" / "replicas.log").exists())
        self.assertEqual((self.folder / "data" / "replicas.device").read_text(), f"{path}\n")
        for word in (self.folder / "data", path):
            info = self.info(word)
            self.assertEqual((info["node"], info["primary_bytes"], info["file_bytes"]),
                             (nid, MIB, 64 * MIB))

    def test_raw_one_level(self):
        path = self.device("disk")
        self.comes_back(*self.raw(path), "--no-log-two-level")
        self.assertEqual(self.info(path)["primary_bytes"], 0)

    def test_direct_two_levels(self):
        self.comes_back("--log-access", "direct")
        self.assertEqual(self.info(self.folder / "data")["primary_bytes"], MIB)

    def test_cached_one_level(self):
        self.comes_back("--log-access", "cached", "--no-log-two-level", "--log-scrub-bytes", "0")
        self.assertEqual(self.info(self.folder / "data")["primary_bytes"], 0)
        # A log keeps the levels that it was made with.
        peer = self.start_on("data")
        self.assertRegex(peer.log(), r"the log keeps the levels that it was made with.*\blevels=1")

    def test_replicas_at_peers(self):
        """Backups with devices of their own are taken, and have what they acknowledged."""
        at_peers = ("--replicas", "2", "--replicas-at", "peers")
        peers = [self.begin_on(f"peer{i}", *at_peers, *self.raw(self.device(f"disk{i}", 96 * MIB)),
                               *(("--no-log-two-level",) if i == 2 else ()))
                 for i in range(3)]
        for peer in peers:
            peer.wait_ready()
        owner = peers[0]
        client = self.client()
        client.do("level", "durable")
        cids = harness.eventually(self, "a backup is there", harness.READY_MAX,
                                  lambda: self.created(client, owner.nid))
        for cid in cids:
            client.do("put", cid, f"chunk {cid}".ljust(20))
        harness.eventually(self, "all zones have all backups", harness.READY_MAX, self.is_complete)
        for peer in peers:
            peer.kill()
        for i in (1, 2):
            self.verified(self.folder / f"peer{i}")
            zones = [zone for zone in self.info(self.folder / f"peer{i}")["zones"]
                     if zone["owner"] == owner.nid]
            shown = ""
            for zone in zones:
                shown += self.run_program("shoal", "log", "dump", self.folder / f"peer{i}", "--zone",
                                          zone["zone"]).text
            for cid in cids:
                self.assertRegex(shown, rf"(?m)^{re.escape(cid)} .*current", f"backup {i}")

    def is_complete(self):
        zones = self.shoal_json(self.superpeer, "status")["zones"]
        return zones["all"] >= 3 and not zones["under_replicated"]

    def created(self, client, nid):
        """Ten chunks, or None while there are too few backups."""
        made = [client.ask("create", 20, nid) for _ in range(10)]
        if all(answer.startswith("ok") for answer in made):
            return [answer[3:] for answer in made]
        return None

    def test_a_block_device(self):
        path = self.device("disk", 96 * MIB)
        made = subprocess.run(["losetup", "--find", "--show", str(path)], capture_output=True, text=True,
                              check=False) if shutil.which("losetup") else None
        if not made or made.returncode:
            self.skipTest("only a privileged process may make the loop device")
        device = made.stdout.strip()
        self.addCleanup(subprocess.run, ["losetup", "--detach", device], check=True)
        self.comes_back(*self.raw(device))
        self.assertEqual(self.info(device)["file_bytes"], 96 * MIB)
        peer = self.start_on("data", *self.raw(device))
        self.refused_on("other", f"log_device {device} is in use: another process has it, or it is mounted",
                        *self.raw(device))
        self.refused("shoal", "log", "info", device, says=f"a node, or another command, uses {device}")
        peer.kill()
        self.refused_on("other", f"log_device {device} is the log of another node", *self.raw(device))

    def test_made_before_the_peer_joins(self):
        """A new peer makes its log, which may take longer than a lease, while no superpeer waits for its heartbeats; it keeps that log when it is killed meanwhile."""
        address = self.superpeer.address
        self.superpeer.kill()
        path = self.folder / "data" / "replicas.log"
        magics = set()
        for _ in range(2):
            peer = self.begin_on("data", "--replicas", "1")
            harness.eventually(self, "the log is made", harness.READY_MAX, lambda: path.exists() and any(path.read_bytes()[:4096]))
            magics.add(path.read_bytes()[32:40])
            self.assertFalse(peer.is_ready())
            peer.kill()
        self.superpeer = harness.Node(self, "superpeer-again", "--roles", "superpeer", "--data-dir", self.folder / "superpeer",
                                      "--failure-ns", "1s", "--listen", address).wait_ready()
        peer = self.start_on("data")
        self.assertEqual({*magics, path.read_bytes()[32:40]}, magics)
        self.assertEqual(len(magics), 1)
        self.write_some(self.client(), peer.nid, {}, random.Random(harness.seed()), ("durable",), 5)
        peer.kill()
        self.assertEqual(self.start_on("data").nid, peer.nid)

    def test_named_when_the_peer_would_know_it(self):
        """A new peer that has joined, and whose disk does not take that yet, does not give its log a name: killed then, it would not be the node of that name any more."""
        address, data = self.superpeer.address, self.folder / "data"
        self.superpeer.kill()
        peer = self.begin_on("data", "--replicas", "1")
        path = data / "replicas.log"
        harness.eventually(self, "the log is made", harness.READY_MAX, lambda: path.exists() and any(path.read_bytes()[:4096]))
        (data / "identity.part" / "in the way").mkdir(parents=True)
        self.superpeer = harness.Node(self, "superpeer-again", "--roles", "superpeer", "--data-dir", self.folder / "superpeer",
                                      "--failure-ns", "1s", "--listen", address).wait_ready()
        harness.eventually(self, "the peer can't store that it has joined", harness.READY_MAX,
                           lambda: "the identity can't be stored" in peer.log())
        self.assertFalse(peer.is_ready())
        self.assertFalse(any(path.read_bytes()[8:18]))
        peer.kill()
        shutil.rmtree(data / "identity.part")
        peer = self.start_on("data")
        self.assertEqual(int.from_bytes(path.read_bytes()[16:18], "little"), peer.nid)

    # --- What is refused -------------------------------------------------------------------------

    def test_a_device_is_one_nodes(self):
        path = self.device("disk")
        peer = self.start_on("data", *self.raw(path))
        self.refused_on("other", f"log_device {path} is in use", *self.raw(path))
        self.refused("shoal", "log", "info", path, says=f"a node, or another command, uses {path}")
        self.refused("shoal", "log", "verify", self.folder / "data",
                     says="a node, or another command, uses")
        peer.kill()
        self.untouched(path, self.refused_on, "other",
                       f"log_device {path} is the log of another node, and this peer has been none yet: "
                       "give this peer a device of its own", *self.raw(path))
        self.assertFalse((self.folder / "other" / "replicas.device").exists())
        self.start_on("data", *self.raw(path))

    def test_another_format(self):
        peer = self.start_on("data")
        peer.kill()
        path = self.folder / "data" / "replicas.log"
        with open(path, "r+b") as file:
            head = bytearray(file.read(64))
            head[18] = 1
            head[4:8] = crc32c(head[8:]).to_bytes(4, "little")
            file.seek(0)
            file.write(head)
        self.refused_on("data", r"replicas.log in data_dir has another format than this version's logs \(2\): start "
                                "the version that wrote it, or remove it to begin a new log")
        path.unlink()
        self.start_on("data")

    def test_what_is_there_stays(self):
        for at in (1080, 65600, MIB - 1):
            path = self.device(f"at{at}", content=b"S", at=at)
            self.untouched(path, self.refused_on, "data",
                           f"log_device {path} has something on it that is no log of this version, and "
                           "was left as it is: .* zeros over its first MiB", *self.raw(path))
        path = self.device("small", 4 * MIB)
        self.untouched(path, self.refused_on, "data",
                       rf"log_device {path} has 4MiB: a new log takes at least \d+KiB", *self.raw(path))
        self.refused_on("data", f"log_device {self.folder}/none is not there: name a partition, or a file",
                        *self.raw(self.folder / "none"))
        self.refused_on("data", "is neither a block device nor a file", *self.raw(self.folder))
        self.assertFalse((self.folder / "data" / "replicas.device").exists())
        self.start_on("data", *self.raw(self.device("good")))

    def test_not_writable(self):
        folder = self.folder / "mounted"
        folder.mkdir()
        at = shlex.quote(str(folder))
        script = (f"mount -t tmpfs -o size=80m,mode=755 none {at} && truncate -s 64M {at}/disk && "
                  f"mount -o remount,ro {at}")
        prefix = self.mounting(script)
        self.refused_on("data", f"log_device {folder}/disk can't be opened to be read and written: see to "
                        "its permissions, and whether it is read-only", *self.raw(folder / "disk"),
                        prefix=prefix)

    def test_the_log_is_where_it_was(self):
        path, other = self.device("disk"), self.device("other")
        peer = self.start_on("data", *self.raw(path))
        client, note = self.client(), self.folder / "data" / "replicas.device"
        cid = client.do("create", 5, peer.nid)
        client.do("put", cid, "there")
        peer.kill()
        for flags in ((), ("--log-access", "direct"), ("--log-access", "cached")):
            self.refused_on("data", f"this node's log is on {path}: start it with log_access raw", *flags)
        self.untouched(other, self.refused_on, "data",
                       f"log_device {other} has no log, and this node's was on {path}: name that one",
                       *self.raw(other))
        self.refused_on("data", "start this peer with replicas", "--replicas", "0")
        # Named otherwise, and found all the same.
        moved = self.folder / "moved"
        path.rename(moved)
        peer = self.start_on("data", *self.raw(moved))
        self.assertEqual(note.read_text(), f"{moved}\n")
        self.holds(self.client(), {cid: "there"})
        peer.stop()
        # The start misses the part that was cut off before it reads, or writes, anything.
        with open(moved, "r+b") as file:
            file.truncate(48 * MIB)
        self.untouched(moved, self.refused_on, "data",
                       f"log_device {moved} has 48MiB: .* needs all the bytes that it had",
                       *self.raw(moved))
        with open(moved, "r+b") as file:
            file.truncate(64 * MIB)
        note.write_text("nowhere")
        self.refused_on("data", "the file replicas.device in data_dir, which names the device of this "
                        "node's log: .*; write the device's path and a new line into it",
                        *self.raw(moved))
        note.write_text(f"{moved}\n")
        peer = self.start_on("data", *self.raw(moved))
        self.holds(self.client(), {cid: "there"})
        peer.stop()
        # A log in the folder is not passed over either.
        peer = self.start_on("folder")
        peer.stop()
        self.untouched(other, self.refused_on, "folder",
                       r"data_dir has this node's log \(replicas.log\)", *self.raw(other))

    def test_options(self):
        base = ("--superpeers", self.superpeer.address, "--listen", "127.0.0.1:0", "--replicas", "1",
                "--data-dir", self.folder / "x", "--chunk-bytes-max", "1MiB")
        for flags, says in (
                (("--log-access", "mmap"), '"mmap" is not auto or direct or cached or raw'),
                (("--log-access", "raw"), "option log_device: is empty: log_access raw needs a partition"),
                (("--log-device", "/dev/null"), "is used with log_access raw only"),
                (("--log-access", "raw", "--log-device", "disk"), "is not a path from / on"),
                (("--log-buffer-bytes", "8388609"), "8388609 is not a multiple of 65536"),
                (("--log-primary-bytes", "1048577"), "1048577 is not a multiple of 4096"),
                (("--no-log-two-level", "--log-buffer-bytes", "16MiB"),
                 "16MiB is out of range: without log_two_level it must be at least 33MiB"),
                (("--log-primary-bytes", "64KiB"), "log_primary_bytes|--log-primary-bytes")):
            self.refused("shoald", *base, *flags, says=says, status=harness.USAGE)
        self.refused("shoal", "up", "1", "--log-access", "raw", "--log-device", "/dev/null", says="differs from node to node",
                     status=harness.USAGE)
        path = self.device("disk")
        self.refused("shoal", "log", "info", path, "--file", "x", says="is no folder",
                     status=harness.USAGE)
        self.refused("shoal", "log", "info", path, says="is empty: no log was made in it yet")


if __name__ == "__main__":
    unittest.main()
