"""Peers whose replicas do not come back, as real processes: what waits, what is back older and what is lost is told to operators and programs (docs/recovery.md)."""
import json
import signal
import subprocess
import unittest

import harness
import recovery_test

LARGE = 600_000


class LostZones(recovery_test.Cluster):
    """Three peers, each of which has replicas of the zones of both others."""

    STORE_BYTES = ["64MiB"] * 3

    def setUp(self):
        super().setUp()
        self.writer = self.client()
        self.writer.do("level", "durable")
        self.first = self.peers[0]
        self.content = self.fill(self.writer, self.first.nid, 20)
        for number in range(6):  # more than a zone has room for
            cid = self.writer.do("create", LARGE, self.first.nid)
            self.shoal(self.superpeer, "chunk", "put", cid, "--raw", stdin=bytes([number]) * LARGE)
        self.wait_zones()
        self.watch_path = self.folder / "watch.out"
        with open(self.watch_path, "wb") as output:
            self.watch = subprocess.Popen(
                [str(harness.BIN / "shoal"), "node", "watch", "--json", "--connect", self.superpeer.address],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder,
                env=harness.clean_environment(**self.ENVIRONMENT))
        self.addCleanup(self.watch_end)

    def watch_end(self):
        self.watch.terminate()
        self.watch.wait(harness.STOP_MAX)

    def events(self, kind):
        """The zones that the watch has told of."""
        lines = self.watch_path.read_text().splitlines()
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return [row for row in found if row["event"] == kind]

    def recovery(self):
        """What `shoal recovery` says, and its exit status."""
        done = self.run_program("shoal", "recovery", "--json", "--connect", self.superpeer.address)
        return json.loads(done.text), done.returncode

    def zones_of(self, peer):
        """The zones that a peer has made, as far as something becomes of them."""
        return [zone for zone in self.recovery()[0].get("zones", []) if zone["zone"].startswith(f"{peer.nid}:")]

    def all_are(self, peer, state, waits_for=()):
        """Waits until all of a peer's zones are in a state."""
        def are():
            zones = self.zones_of(peer)
            is_so = zones and all((zone["state"], sorted(zone["waits_for"])) == (state, sorted(waits_for)) for zone in zones)
            return zones if is_so else None
        return harness.eventually(self, f"zones of {peer.nid} are {state}", harness.READY_MAX, are)

    def kill_all(self):
        """At once: none of them notices that another one has failed."""
        for peer in self.peers:
            peer.process.send_signal(signal.SIGSTOP)
        for peer in self.peers:
            peer.kill()

    def text(self, *words):
        return self.run_program("shoal", *words, "--connect", self.superpeer.address).text

    def again(self, i):
        self.peers[i] = self.begin_peer(i, 2).wait_ready()

    def test_a_replica_is_waited_for_and_given_up(self):
        first, second, third = self.peers
        connect = ("--connect", self.superpeer.address)
        self.assertEqual(self.recovery(), ({"zones": [], "all": {"asks": 0, "waits": 0, "restores": 0, "lost": 0, "older": 0,
                                                                 "waits_for": [], "read_bytes": 0, "replica_bytes": 0, "without_room": 0, "missing_bytes": 0}}, harness.OK))
        self.assertIn("Every zone is with its owner", self.text("recovery"))
        self.refused("shoal", "node", "lost", second.nid, *connect, says="up, so its disk is not lost")
        self.refused("shoal", "node", "lost", 999, *connect, says="no such peer")
        self.kill_all()
        zones = self.all_are(first, "waits", [second.nid, third.nid])
        self.assertGreaterEqual(len(zones), 2)
        self.assertTrue(all(zone["former"] == first.nid for zone in zones))
        self.assertEqual(self.recovery()[1], harness.FAILED)
        for command in ("recovery", "status"):
            self.assertRegex(self.text(command), rf"wait for the disk of node {third.nid}\b.*\n?.*`shoal node lost {third.nid}`")
        hasty = self.client(timeout_ns=2_000_000_000)
        cid, text = next(iter(self.content.items()))
        self.assertNotRegex(hasty.ask("get", cid), "^ok|ENOCHUNK|ELOST")
        self.shoal(self.superpeer, "node", "lost", second.nid)
        self.assertRegex(self.text("node", "list"), rf" {second.nid}  peer       lost ")
        self.all_are(first, "waits", [third.nid])
        self.assertEqual(self.events("zone_older") + self.events("zone_lost"), [])
        # The other replica is there again; the one that was given up may have had more.
        self.again(2)
        zones = self.all_are(first, "older")
        self.check(self.client(), self.content)
        self.assertTrue(all(zone["owner"] == third.nid and zone["older"] for zone in zones))
        self.assertIn("came back older", self.text("status"))
        told = harness.eventually(self, "the watch has told of all", harness.READY_MAX, lambda: (
            rows if len(rows := [row for row in self.events("zone_older") if row["zone"].startswith(f"{first.nid}:")]) == len(zones) else None))
        self.assertEqual(sorted(row["zone"] for row in told), sorted(zone["zone"] for zone in zones))
        self.assertTrue(any("first" in row for row in told))
        self.all_are(second, "waits", [first.nid])
        # It has the only replicas, and keeps them: they are there again after a failure.
        self.peers[2].kill()
        self.peers[2] = self.begin_peer(2, 3).wait_ready()
        self.again(0)  # which has replicas that go first
        harness.eventually(self, "nothing is under way", harness.READY_MAX, lambda: not any(
            self.recovery()[0]["all"][state] for state in ("asks", "waits", "restores")))
        self.all_are(first, "older")
        self.check(self.client(), self.content)

    def test_what_is_lost_is_said_to_be(self):
        first, second, third = self.peers
        self.kill_all()
        self.all_are(first, "waits", [second.nid, third.nid])
        for peer in (second, third):
            self.shoal(self.superpeer, "node", "lost", peer.nid)
        zones = self.all_are(first, "lost")
        self.assertTrue(any("last" in zone for zone in zones) and any("last" not in zone for zone in zones))
        self.assertEqual(self.recovery()[1], harness.FAILED)
        for command in ("recovery", "status"):
            self.assertRegex(self.text(command), rf"lost, with all replicas: {self.recovery()[0]['all']['lost']}\b")
        told = harness.eventually(self, "the watch has told of all", harness.READY_MAX, lambda: (
            rows if len(rows := [row for row in self.events("zone_lost") if row["nid"] == first.nid]) == len(zones) else None))
        self.assertEqual(sorted(row["zone"] for row in told), sorted(zone["zone"] for zone in zones))
        self.are_lost()
        self.refused("shoal", "chunk", "get", next(iter(self.content)), "--connect", self.superpeer.address, says="no replica is left")
        # Neither the peer's next life knows more, nor one whose disk was declared lost.
        self.again(0)
        self.again(1)
        self.are_lost()
        self.assertEqual(len(self.all_are(first, "lost")), len(zones))
        cid = self.client().do("create", 8, first.nid)
        self.assertNotIn(cid, self.content)
        self.assertTrue(self.client().ask("get", cid).startswith("ok"))

    def are_lost(self):
        client = self.client()
        for cid in self.content:
            for words in (("get", cid), ("put", cid, self.content[cid])):
                self.assertTrue(client.ask(*words).startswith("SHOAL_ELOST"), (words, client.ask(*words)))

    # --- Losses that are accepted -----------------------------------------------------------------

    def accept(self, *zones):
        """The zones of which `shoal recovery --accept-loss` says that their loss is accepted now."""
        done = self.shoal(self.superpeer, "recovery", "--accept-loss", *zones, "--json")
        return sorted(zone["zone"] for zone in json.loads(done.text)["accepted"])

    def lost(self):
        return [zone["zone"] for zone in self.recovery()[0]["zones"] if zone["state"] == "lost"]

    def not_accepted(self, *words, says, status=harness.FAILED):
        before = self.lost()
        self.refused("shoal", "recovery", "--accept-loss", *words, "--connect", self.superpeer.address, says=says, status=status)
        self.assertEqual(self.lost(), before)

    def lose(self, *peers):
        """All peers end, and the disks of some are lost."""
        self.kill_all()
        for peer in self.peers:
            self.all_are(peer, "waits", [other.nid for other in self.peers if other != peer])
        for peer in peers:
            self.shoal(self.superpeer, "node", "lost", peer.nid)

    def are_gone(self, content):
        """Waits until chunks do not exist."""
        client = self.client()
        for cid in content:
            harness.eventually(self, f"chunk {cid} does not exist", harness.READY_MAX,
                               lambda cid=cid: client.ask("get", cid).startswith("SHOAL_ENOCHUNK"))

    def test_only_lost_zones_are_accepted(self):
        first, second, third = self.peers
        owned = f"{first.nid}:1"
        self.not_accepted(says="needs the zones", status=harness.USAGE)
        self.not_accepted("all", owned, says="either zones or all", status=harness.USAGE)
        self.not_accepted("all", "--wait", "1s", says="wait first", status=harness.USAGE)
        for word in ("x", "64:", "1:1", "64:0", "64:-1", "64:1x", ""):
            self.not_accepted(word, says=f'"{word}" is no zone', status=harness.USAGE)
        self.refused("shoal", "recovery", owned, "--connect", self.superpeer.address, says="go with --accept-loss only", status=harness.USAGE)
        self.not_accepted(owned, says=f"zone {owned} is not among those that `shoal recovery` lists")
        self.assertRegex(self.text("recovery", "--accept-loss", "all"), "^No zone is lost.\n$")
        self.assertEqual(self.accept("all"), [])
        kept = self.fill(self.writer, second.nid, 20)
        self.lose(second, third)
        lost = [zone["zone"] for zone in self.all_are(first, "lost")]
        waiting = self.all_are(second, "waits", [first.nid])[0]["zone"]
        says = f"zone {waiting} is not lost: it waits for the disk of node {first.nid}(.|\n)*`shoal node lost NID`"
        self.not_accepted(waiting, says=says)
        self.not_accepted(*lost, waiting, says=says)
        self.not_accepted(lost[0], f"{first.nid}:281474976710655", says="is not among those")
        self.again(0)  # and brings back what it has replicas of
        older = harness.eventually(self, "a zone is back older", harness.READY_MAX, lambda: [
            zone["zone"] for zone in self.zones_of(second) if zone["state"] == "older"])[0]
        # One without chunks is removed soon.
        self.not_accepted(lost[0], older, says=f"zone {older} is not (lost: it is back, with node {first.nid}|among those)")
        # A peer that says of IDs of its former life that they are lost stops to say so.
        self.are_lost()
        self.assertEqual(self.accept(lost[0], lost[0]), [lost[0]])
        self.assertEqual(sorted(zone["zone"] for zone in self.zones_of(first)), sorted(lost[1:]))
        self.not_accepted(lost[0], says="is not among those")
        self.are_lost()
        self.assertEqual(self.accept("all"), sorted(lost[1:]))
        self.are_gone(self.content)
        self.check(self.client(), kept)

    def test_a_cluster_is_clean_after_a_loss_was_accepted(self):
        # Each of two superpeers has some of the records, and hears from the other which nodes have lost zones.
        harness.Node(self, "superpeer-2", "--roles", "superpeer", "--superpeers", self.superpeer.address, "--data-dir",
                     self.folder / "superpeer-2").wait_ready()
        self.lose(*self.peers)
        zones = [zone for peer in self.peers for zone in self.all_are(peer, "lost")]
        self.assertEqual(self.recovery()[1], harness.FAILED)
        self.refused("shoal", "node", "forget", self.peers[0].nid, "--connect", self.superpeer.address, says="zone")
        told = self.text("recovery", "--accept-loss", "all")
        for zone in zones:
            says = f"with its creator's chunks from {zone['first']} to {zone['last']}, and perhaps others" if "last" in zone else "whose chunk IDs are not known"
            self.assertIn(f"Accepted that zone {zone['zone']} of node {zone['former']} is lost, {says}.\n", told)
        self.assertEqual(self.recovery(), ({"zones": [], "all": {"asks": 0, "waits": 0, "restores": 0, "lost": 0, "older": 0,
                                                                 "waits_for": [], "read_bytes": 0, "replica_bytes": 0, "without_room": 0, "missing_bytes": 0}}, harness.OK))
        self.assertIn("Every zone is with its owner", self.text("recovery"))
        self.assertEqual(self.zones()["lost"], 0)
        self.assertNotIn("lost, with all replicas", self.text("status"))
        self.are_gone(self.content)
        for peer in self.peers[1:]:
            self.shoal(self.superpeer, "node", "forget", peer.nid)
            self.assertNotRegex(self.text("node", "list"), rf"\b{peer.nid}  peer")
        # The cluster goes on, with the first one's next life and two new peers.
        self.again(0)
        for i in (1, 2):
            (self.folder / f"peer-{i}").rename(self.folder / f"peer-{i}-lost")
            self.again(i)
        self.wait_zones()
        self.are_gone(self.content)
        client = self.client()
        self.check(client, self.fill(client, self.peers[0].nid, 3))


if __name__ == "__main__":
    unittest.main()
