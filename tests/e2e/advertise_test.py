"""Nodes that listen on all addresses, or behind a router that translates them, are found under the
address that they advertise. Machines are network namespaces."""
import re
import shutil
import unittest

import harness
import network

INSIDE, ROUTER, OUTSIDE, CLIENT = 1, 2, 3, 4
SEEN_MAX = 60  # seconds; reached only when something is wrong


class Advertise(harness.Case):
    @classmethod
    def setUpClass(cls):
        reason = network.why_not()
        if reason:
            raise unittest.SkipTest(reason)

    def setUp(self):
        super().setUp()
        self.secret = self.write("secret", "of the test of advertised addresses")
        self.net = network.Network(CLIENT)
        self.addCleanup(self.net.remove)

    def at(self, machine, port):
        return f"{self.net.address(machine)}:{port}"

    def start(self, machine, role, superpeer, *flags):
        name = f"{role}{machine}"
        return harness.Node(self, name, "--roles", role, "--superpeers", superpeer, "--secret-file",
                            self.secret, "--data-dir", self.folder / f"data-{name}", *flags,
                            prefix=self.net.prefix(machine)).wait_ready()

    def translate(self, *ports):
        """The router hands what comes to one of its ports to a port of the machine inside, in its
        own name; nobody else reaches that machine, and it reaches nobody else."""
        prefix = self.net.prefix(ROUTER)
        network.run(*prefix, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        network.run(*prefix, "nft", "add table ip nat; add chain ip nat arriving { type nat hook "
                    "prerouting priority -100; }; add chain ip nat leaving { type nat hook "
                    "postrouting priority 100; }; add rule ip nat leaving masquerade")
        for outer, inner in ports:
            network.run(*prefix, "nft", f"add rule ip nat arriving tcp dport {outer} dnat to "
                        f"{self.at(INSIDE, inner)}")
        self.net.cut([INSIDE], [OUTSIDE, CLIENT])

    def client(self, address):
        return harness.Client(self, [address], secret_file=self.secret,
                              prefix=self.net.prefix(CLIENT))

    def addresses(self, client):
        """Address by node ID, as a client is told them."""
        return {int(nid): address for nid, _, address in
                (word.split(":", 2) for word in client.do("nodes").split())}

    def serves(self, client, peer):
        """The client reaches the peer under the address that it was told."""
        harness.eventually(self, f"{peer.name} is up", SEEN_MAX,
                           lambda: client.states().get(peer.nid) == "up")
        self.assertEqual(self.addresses(client)[peer.nid], peer.address)
        cid = client.do("create", 5, peer.nid)
        client.do("put", cid, "found")
        self.assertEqual(client.do("get", cid), "found")

    def test_all_addresses_are_listened_on(self):
        superpeer = self.start(INSIDE, "superpeer", self.at(INSIDE, 5300), "--listen",
                               "0.0.0.0:5300", "--advertise", self.at(INSIDE, 5300))
        peer = self.start(OUTSIDE, "peer", superpeer.address, "--listen", "[::]:0", "--advertise",
                          self.at(OUTSIDE, 0))
        self.assertNotEqual(peer.address, self.at(OUTSIDE, 0))
        client = self.client(superpeer.address)
        self.assertEqual(self.addresses(client)[1], self.at(INSIDE, 5300))
        self.serves(client, peer)
        self.assertNotRegex(superpeer.log(), "failed|silent")

    def test_a_router_translates(self):
        self.translate((6300, 5300), (6400, 5400), (5500, 5500))
        superpeer = self.start(INSIDE, "superpeer", self.at(ROUTER, 6300), "--listen",
                               "0.0.0.0:5300", "--advertise", self.at(ROUTER, 6300))
        inside = self.start(INSIDE, "peer", self.at(ROUTER, 6300), "--listen", "0.0.0.0:5400",
                            "--advertise", self.at(ROUTER, 6400), "--superpeer-port", 5500)
        outside = self.start(OUTSIDE, "peer", self.at(ROUTER, 6300), "--listen",
                             self.at(OUTSIDE, 5400))
        client = self.client(self.at(ROUTER, 6300))
        for peer in (inside, outside):
            self.serves(client, peer)
        # The superpeer that runs beside a promoted peer is found in the same way.
        done = self.run_program(shutil.which("ip"), *self.net.prefix(CLIENT)[1:], harness.BIN / "shoal", "node",
                                "promote", inside.nid, "--connect", self.at(ROUTER, 6300),
                                "--secret-file", self.secret)
        self.assertEqual(done.returncode, 0, done.problem)
        harness.eventually(self, "the second superpeer is up", SEEN_MAX,
                           lambda: client.states().get(2) == "up")
        self.assertEqual(self.addresses(client)[2], self.at(ROUTER, 5500))
        self.serves(self.client(self.at(ROUTER, 5500)), outside)
        for node in (superpeer, inside, outside):
            self.assertNotRegex(node.log(), "failed|silent")

    def test_two_machines_with_one_address(self):
        """The newcomer is refused, with an error that names the holder, which goes on; when the
        holder is gone, the newcomer joins by itself."""
        superpeer = self.start(INSIDE, "superpeer", self.at(INSIDE, 5300), "--listen",
                               self.at(INSIDE, 5300))
        shared = self.at(OUTSIDE, 5400)
        holder = self.start(OUTSIDE, "peer", superpeer.address, "--listen", shared)
        newcomer = harness.Node(self, "newcomer", "--superpeers", superpeer.address,
                                "--secret-file", self.secret, "--listen", "0.0.0.0:5400",
                                "--advertise", shared, prefix=self.net.prefix(ROUTER))
        client = self.client(superpeer.address)
        self.serves(client, holder)
        harness.eventually(self, "the newcomer says why", SEEN_MAX, lambda: re.search(
            f"node {holder.nid} has the address {shared}, and its lease is not over",
            newcomer.log()))
        self.serves(client, holder)
        self.assertFalse(newcomer.ready_file.exists())
        self.assertNotRegex(superpeer.log(), "node failed")
        holder.kill()
        newcomer.wait_ready()
        self.assertNotEqual(newcomer.nid, holder.nid)
        self.assertEqual(client.states()[holder.nid], "failed")

    def test_a_killed_peer_is_started_anew(self):
        """At its address, once the former process is known to be gone: with its folder it is the same
        node, with an empty one a new node."""
        superpeer = self.start(INSIDE, "superpeer", self.at(INSIDE, 5300), "--listen",
                               self.at(INSIDE, 5300))
        flags = (OUTSIDE, "peer", superpeer.address, "--listen", self.at(OUTSIDE, 5400))
        first = self.start(*flags)
        client = self.client(superpeer.address)
        self.serves(client, first)
        first.kill()
        second = self.start(*flags)
        self.assertEqual(second.nid, first.nid)
        self.serves(client, second)
        second.kill()
        shutil.rmtree(self.folder / f"data-peer{OUTSIDE}")
        third = self.start(*flags)
        self.assertNotEqual(third.nid, first.nid)
        self.serves(client, third)
        self.assertEqual(client.states()[first.nid], "failed")

    def test_a_wildcard_is_refused(self):
        for wildcard in ("0.0.0.0:5300", "[::]:5300", "0:5300"):
            self.refused("shoald", "--listen", wildcard, "--superpeers", "127.0.0.1:1",
                         "--secret-file", self.secret, status=2, says="set the option advertise")
        self.refused("shoald", "--listen", "*:5300", "--superpeers", "127.0.0.1:1",
                     "--secret-file", self.secret, status=2, says=r"0\.0\.0\.0:PORT")


if __name__ == "__main__":
    unittest.main()
