"""A program that keeps a cluster open, while everything that it knew of the cluster changes."""
import random
import re
import socket
import unittest

import harness


def free_addresses(count):
    """Addresses that nobody listens at, all different; they are known before the nodes run."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return found


class Changes(harness.Case):
    def superpeer_at(self, name, folder, *others, listen="127.0.0.1:0"):
        """A superpeer on its folder, which is told of the others' addresses; not waited for."""
        known = ("--superpeers", ",".join(others)) if others else ()
        return harness.Node(self, name, "--roles", "superpeer", "--data-dir",
                            self.folder / folder, "--listen", listen, "--failure-ns", "1s", *known)

    def peer_at(self, name, *superpeers):
        return harness.Node(self, name, "--roles", "peer", "--superpeers", ",".join(superpeers),
                            "--failure-ns", "1s").wait_ready()

    def seen(self, client, nid, state):
        harness.promptly(self, f"node {nid} is {state}",
                         lambda: client.states().get(nid) == state)

    def vote(self, *nodes, count):
        """Waits until so many superpeers vote, so that the others are not needed any more."""
        harness.eventually(self, f"{count} superpeers vote", 60, lambda: all(
            re.findall(r"superpeers vote .*count=(\d+)", node.log())[-1:] == [str(count)]
            for node in nodes))

    def filled(self, client, text, nid=""):
        cid = client.do("create", len(text), nid)
        client.do("put", cid, text)
        return cid

    def test_one_address_of_many_is_enough(self):
        superpeer, (peer,) = self.cluster(1)
        luck = random.Random(harness.seed())
        cid = self.filled(harness.Client(self, [superpeer.address]), "found")
        dead = [*free_addresses(6), "nowhere.invalid:4100", "unix:/no/such/socket"]
        for good in (superpeer, peer):
            addresses = [*dead, good.address]
            luck.shuffle(addresses)
            client = harness.Client(self, addresses)
            self.assertEqual(client.do("get", cid), "found")
            self.assertEqual(client.states()[peer.nid], "up")
        for addresses in (dead, dead[:1]):
            nobody = harness.Client(self, addresses, opens=False)
            self.assertRegex(nobody.opened, "^SHOAL_(EUNREACHABLE|EADDRESS)")

    def test_superpeers_are_replaced(self):
        """One client asks all the time, one is idle; neither's first address stays alive."""
        first = self.superpeer_at("superpeer1", "data1").wait_ready()
        peers = [self.peer_at(f"peer{i}", first.address) for i in range(2)]
        busy, idle = (harness.Client(self, [first.address]) for _ in range(2))
        for client in (busy, idle):
            for peer in peers:
                self.seen(client, peer.nid, "up")
        cids = [self.filled(busy, f"chunk{i}", peer.nid) for i, peer in enumerate(peers)]
        there = [first]
        for turn in range(2, 5):
            added = self.superpeer_at(f"superpeer{turn}", f"data{turn}",
                                      there[-1].address).wait_ready()
            there.append(added)
            self.vote(*there, count=len(there))
            gone = there.pop(0)
            self.demote(added, gone.nid)
            self.assertEqual(gone.wait_end(), 0)
            self.seen(busy, gone.nid, "left")
            for i, cid in enumerate(cids):
                self.assertEqual(busy.do("get", cid), f"chunk{i}")
        late = self.peer_at("late", there[0].address)
        for client in (busy, idle):
            self.seen(client, late.nid, "up")
            for i, cid in enumerate(cids):
                self.assertEqual(client.do("get", cid), f"chunk{i}")
            cid = self.filled(client, "new", late.nid)
            self.assertEqual(client.do("get", cid), "new")
            client.do("remove", cid)
            self.assertRegex(client.ask("get", cid), "^SHOAL_ENOCHUNK")

    def test_everything_is_killed(self):
        """All nodes are killed; started again, they find each other, and clients find them."""
        addresses = free_addresses(3)
        superpeers = [self.superpeer_at(f"superpeer{i}", f"data{i}", *addresses,
                                        listen=addresses[i]) for i in range(3)]
        for node in superpeers:
            node.wait_ready()
        peers = [self.peer_at(f"peer{i}", *addresses) for i in range(2)]
        client = harness.Client(self, [addresses[0]])
        for peer in peers:
            self.seen(client, peer.nid, "up")
        cid = self.filled(client, "lost", peers[0].nid)
        for node in [*superpeers, *peers]:
            node.kill()
        self.assertNotRegex(harness.Client(self, addresses, timeout_ns=1_000_000_000,
                                           opens=False).opened, "^ok")
        # Each knows one address only, and not the same; one is at another address than before.
        moved = free_addresses(1)[0]
        places = [addresses[0], addresses[1], moved]
        superpeers = [self.superpeer_at(f"again{i}", f"data{i}", addresses[i % 2],
                                        listen=places[i]) for i in range(3)]
        for node in superpeers:
            node.wait_ready()
        again = [self.peer_at(f"peer-again{i}", places[i]) for i in range(2)]
        known = {peer.nid for peer in peers}
        for one in [client, *(harness.Client(self, [node.address])
                              for node in [*superpeers, *again])]:
            for node in again:
                self.assertNotIn(node.nid, known)
                self.seen(one, node.nid, "up")
            for node in peers:
                self.seen(one, node.nid, "failed")
            self.assertRegex(one.ask("get", cid), "^SHOAL_EFAILED")
            new = self.filled(one, "found", again[1].nid)
            self.assertEqual(client.do("get", new), "found")

    def test_superpeers_are_killed_in_the_midst(self):
        """What needs no superpeer goes on without one; what needs one is told, and then goes on."""
        addresses = free_addresses(3)
        superpeers = [self.superpeer_at(f"superpeer{i}", f"data{i}", *addresses,
                                        listen=addresses[i]) for i in range(3)]
        peer = self.peer_at("peer", *addresses)
        client = harness.Client(self, [addresses[2]])
        self.seen(client, peer.nid, "up")
        cid = self.filled(client, "cached")
        fresh = harness.Client(self, [peer.address], timeout_ns=1_000_000_000)
        for node in superpeers:
            node.wait_ready().kill()
        self.assertEqual(client.do("get", cid), "cached")
        client.do("put", cid, "wrote!")
        # This one never looked it up, and can't now.
        self.assertRegex(fresh.ask("get", cid), "^SHOAL_EUNREACHABLE")
        for i in range(3):
            self.superpeer_at(f"again{i}", f"data{i}", *addresses, listen=addresses[i])
        harness.eventually(self, "it can be looked up", 60,
                           lambda: fresh.ask("get", cid) == "ok wrote!")
        self.seen(client, peer.nid, "up")
        self.assertEqual(client.do("get", cid), "wrote!")


if __name__ == "__main__":
    unittest.main()
