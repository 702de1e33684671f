"""Three superpeers that share their registry, as real processes: one is killed, all are killed."""
import json
import re
import shutil
import socket
import unittest

import harness


def first_cid(text):
    """The chunk ID in what `shoal chunk create` prints: NODE:LOCAL."""
    return re.search(r"\b[0-9]+:[0-9]+\b", text).group(0)


def free_addresses(count):
    """Addresses that nobody listens at, all different; they are known before the nodes run."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return found


class Registry(harness.Case):
    """Three superpeers with their folders."""
    failure = "1s"

    def setUp(self):
        super().setUp()
        self.addresses = free_addresses(3)
        self.starts = 0
        self.superpeers = [self.start(i) for i in range(3)]

    def start(self, index):
        """A superpeer at its address, on its folder; not waited for."""
        self.starts += 1
        return harness.Node(self, f"superpeer{index}-{self.starts}", "--roles", "superpeer",
                            "--superpeers", ",".join(self.addresses),
                            "--listen", self.addresses[index],
                            "--data-dir", self.folder / f"data{index}",
                            "--failure-ns", self.failure)

    def join(self, name, wait=True):
        node = harness.Node(self, name, "--roles", "peer", "--superpeers",
                            ",".join(self.addresses), "--failure-ns", self.failure)
        return node.wait_ready() if wait else node

    def states(self, node):
        """State by address, as that node sees it; empty while it can't tell."""
        done = self.run_program("shoal", "node", "list", "--connect", node.address)
        found = {}
        for line in done.text.splitlines():
            address = re.search(r"\d+\.\d+\.\d+\.\d+:\d+", line)
            state = re.search(r"\b(up|left|failed)\b", line)
            if address and state:
                found[address.group(0)] = state.group(1)
        return found

    def seen(self, node, address, state):
        harness.promptly(self, f"{address} is {state} at {node.address}",
                         lambda: self.states(node).get(address) == state)

    def leader(self):
        """The index of the superpeer that led last, by the logs: the highest term wins."""
        best = (-1, 0)
        for index, node in enumerate(self.superpeers):
            terms = re.findall(r"raft +this superpeer leads .*term=(\d+)", node.log())
            if terms:
                best = max(best, (int(terms[-1]), index))
        self.assertGreater(best[0], 0, "nobody leads")
        return best[1]


class SharedRegistry(Registry):
    def test_leader_is_killed(self):
        peers = [self.join("peer0"), self.join("peer1")]
        harness.ring_whole(self, self.superpeers)
        cid = first_cid(self.shoal(peers[0], "chunk", "create", "8").text)
        self.shoal(peers[0], "chunk", "put", cid, "--text", "survives")
        leader = self.leader()
        self.superpeers[leader].kill()
        late = self.join("late")  # Somebody else leads soon.
        others = [node for i, node in enumerate(self.superpeers) if i != leader]
        for node in others:
            node.wait_ready()
            self.seen(node, late.address, "up")
            self.seen(node, self.addresses[leader], "failed")
            self.assertEqual(self.shoal(node, "chunk", "get", cid, "--raw").stdout, b"survives")
        peers[1].kill()
        for node in others:
            self.seen(node, peers[1].address, "failed")
        self.superpeers[leader] = self.start(leader).wait_ready()
        for node in self.superpeers:
            self.seen(node, self.addresses[leader], "up")
            self.seen(node, late.address, "up")
            self.seen(node, peers[1].address, "failed")
        late.stop()
        for node in self.superpeers:
            self.seen(node, late.address, "left")

    def test_memory_is_not_mixed_with_disks(self):
        for node in self.superpeers:
            node.wait_ready()
        harness.ring_whole(self, self.superpeers)
        self.superpeers[2].kill()
        odd = harness.Node(self, "odd", "--roles", "superpeer", "--superpeers",
                           ",".join(self.addresses), "--listen", self.addresses[2],
                           "--registry", "memory", "--failure-ns", self.failure)
        for node, others in ((odd, "[12]"), (self.superpeers[0], "3"), (self.superpeers[1], "3")):
            harness.eventually(
                self, f"{node.name} names superpeer {others}, and says what to do", 60,
                lambda: re.search(f"others' value of the option registry .*superpeer={others} ",
                                  node.log()))
        self.seen(self.superpeers[0], self.addresses[2], "failed")
        odd.kill()
        self.superpeers[2] = self.start(2).wait_ready()
        self.seen(self.superpeers[2], self.addresses[2], "up")

    def test_all_are_killed(self):
        peer, gone = self.join("peer"), self.join("gone")
        cid = first_cid(self.shoal(peer, "chunk", "create", "8").text)
        self.shoal(peer, "chunk", "put", cid, "--text", "survives")
        gone.stop()
        self.seen(peer, gone.address, "left")
        for node in self.superpeers:
            node.kill()
        self.superpeers = [self.start(i).wait_ready() for i in range(3)]
        for node in self.superpeers:
            self.seen(node, peer.address, "up")
            self.seen(node, gone.address, "left")
        self.assertNotIn("joined the cluster again", peer.log())

        def readable():
            done = self.run_program("shoal", "chunk", "get", cid, "--raw", "--connect",
                                    self.addresses[2])
            return done.returncode == 0 and done.stdout == b"survives"

        harness.eventually(self, "the chunk can be read", 60, readable)
        late = self.join("late")
        self.assertNotIn(late.nid, (peer.nid, gone.nid))

    def test_moved_chunks_are_remembered(self):
        """Chunks move without the leader, and are found when all superpeers were killed."""
        one, two = self.join("one"), self.join("two")
        harness.ring_whole(self, self.superpeers)
        self.shoal(one, "chunk", "create", 8, "--count", 3000, "--node", one.nid)
        for local in (1, 1500, 3000):
            self.shoal(one, "chunk", "put", f"{one.nid}:{local}", "--text", f"{local:08}")
        self.shoal(one, "migrate", one.nid, "--to", two.nid, "--last", f"{one.nid}:1500")
        leader = self.leader()
        self.superpeers[leader].kill()
        other = self.superpeers[(leader + 1) % 3].wait_ready()
        self.seen(other, self.addresses[leader], "failed")
        moved = self.shoal_json(other, "migrate", one.nid, "--to", two.nid)
        self.assertEqual(moved["chunks"], 1500)
        for index, node in enumerate(self.superpeers):
            if index != leader:
                node.kill()
        self.superpeers = [self.start(i).wait_ready() for i in range(3)]
        for node in self.superpeers:
            self.seen(node, two.address, "up")
            for local in (1, 1500, 3000):
                got = self.shoal(node, "chunk", "get", f"{one.nid}:{local}", "--raw").stdout
                self.assertEqual(got, b"%08d" % local)
        self.shoal(self.superpeers[0], "migrate", two.nid, "--to", one.nid)
        got = self.shoal(one, "chunk", "get", f"{one.nid}:1500", "--raw").stdout
        self.assertEqual(got, b"00001500")


class NewAddresses(Registry):
    failure = "10s"  # the peer finds them before that, or joins again

    def test_any_one_address(self):
        """All are killed and started again at other addresses, knowing one of them only."""
        peer = self.join("peer")
        for node in self.superpeers:
            node.kill()
        known = self.addresses[0]
        self.superpeers = []
        for i in range(3):
            self.starts += 1
            self.superpeers.append(harness.Node(
                self, f"superpeer{i}-{self.starts}", "--roles", "superpeer", "--superpeers", known,
                "--listen", known if i == 0 else "127.0.0.1:0", "--data-dir",
                self.folder / f"data{i}", "--failure-ns", self.failure).wait_ready())
        for node in self.superpeers:
            for other in self.superpeers:
                self.seen(node, other.address, "up")
        # The peer knows the old addresses, of which one is still good.
        for node in self.superpeers:
            self.seen(node, peer.address, "up")
        self.assertNotIn("joined the cluster again", peer.log())


class Growth(harness.Case):
    """A cluster of one superpeer that gets more, and fewer, while it runs."""

    def states(self, node):
        """(role, state, address) by node ID."""
        done = self.run_program("shoal", "node", "list", "--json", "--connect", node.address)
        if done.returncode != 0:
            return {}
        return {row["nid"]: (row["role"], row["state"], row["address"])
                for row in json.loads(done.text)["nodes"]}

    def seen(self, node, nid, state):
        harness.promptly(self, f"node {nid} is {state} at {node.address}",
                         lambda: self.states(node).get(nid, ("", ""))[1] == state)

    def vote(self, *nodes, count):
        """Waits until superpeers vote, so that the first one is not needed any more."""
        harness.eventually(self, f"{count} superpeers vote", 60, lambda: all(
            re.search(rf"superpeers vote .*count={count} itself=1", node.log()) for node in nodes))

    def setUp(self):
        super().setUp()
        self.first = self.superpeer("superpeer1", "--data-dir", self.folder / "data1",
                                    "--failure-ns", "1s")

    def peer_of(self, name, *flags):
        return self.peer(name, self.first, "--failure-ns", "1s", "--data-dir",
                         self.folder / name, *flags)

    def test_promotion(self):
        one, two, plain = self.peer_of("one"), self.peer_of("two"), self.peer("plain", self.first,
                                                                    "--failure-ns", "1s")
        cid = first_cid(self.shoal(one, "chunk", "create", "8").text)
        self.shoal(one, "chunk", "put", cid, "--text", "survives")
        done = self.shoal_json(one, "node", "promote", one.nid)
        self.assertEqual((done["nid"], done["superpeer"]), (one.nid, 2))
        self.assertEqual(self.shoal_json(two, "node", "promote", two.nid)["superpeer"], 3)
        self.refused("shoal", "node", "promote", one.nid, "--connect", one.address,
                     says="has a superpeer already")
        self.refused("shoal", "node", "promote", plain.nid, "--connect", one.address,
                     says="no data_dir")
        self.refused("shoal", "node", "promote", "1", "--connect", one.address, says="role")
        self.vote(one, two, count=3)
        self.first.kill()
        self.seen(one, 1, "failed")
        self.assertEqual(self.shoal(plain, "chunk", "get", cid, "--raw").stdout, b"survives")
        self.demote(one, "1")
        for node in (one, two, plain):
            self.seen(node, 1, "left")
        # Only the promoted ones are left, and one of them goes too.
        self.demote(two, "2")
        self.seen(two, 2, "left")
        # On a slow machine it may not lead yet, and says so ("retry later").
        def last_is_refused():
            done = self.run_program("shoal", "node", "demote", "3", "--connect", two.address)
            self.assertEqual(done.returncode, harness.FAILED, done.problem)
            return "last superpeer" in done.problem + done.text

        harness.eventually(self, "the last superpeer can't go", 60, last_is_refused)
        self.refused("shoal", "node", "demote", two.nid, "--connect", two.address, says="role")
        self.assertEqual(self.shoal(two, "chunk", "get", cid, "--raw").stdout, b"survives")
        # Who was demoted may be promoted again.
        harness.eventually(self, "node 2 has ended", 60, lambda: "dismissed" in one.log())
        harness.eventually(self, "it is promoted again", 60, lambda: self.run_program(
            "shoal", "node", "promote", one.nid, "--connect", two.address).returncode == 0)
        self.seen(plain, 4, "up")

    def test_promoted_peer_comes_back(self):
        one = self.peer_of("one")
        self.shoal(one, "node", "promote", one.nid)
        self.vote(one, count=2)
        one.kill()
        # Two superpeers need each other; the peer's process brings its one back, elsewhere.
        again = harness.Node(self, "again", "--superpeers", self.first.address, "--data-dir",
                             self.folder / "one", "--failure-ns", "1s").wait_ready()
        self.assertEqual(again.nid, one.nid)
        self.seen(again, 2, "up")
        self.seen(again, one.nid, "up")

    def test_promoted_peers_go_on_without_the_first(self):
        """All processes are killed. Two promoted ones of three are a majority, and find each other at the
        ports that were free before."""
        def again(name):
            return harness.Node(self, name + "-again", "--superpeers", self.first.address, "--data-dir",
                                self.folder / name, "--failure-ns", "1s")

        one, two = self.peer_of("one"), self.peer_of("two")
        for node in (one, two):
            self.shoal(node, "node", "promote", node.nid)
        self.vote(one, two, count=3)
        harness.eventually(self, "each has all shards", 60, lambda: all(re.search(
            "the ring is whole .*copies=3", node.log()) for node in (one, two)))
        self.shoal(one, "name", "set", "one", "64:1")
        for node in (self.first, one, two):
            node.kill()
        one, two = again("one"), again("two")
        # A peer that knows the first superpeer only learns of the others from the one beside itself.
        harness.eventually(self, "the name is found", harness.READY_MAX, lambda: re.search(
            r"superpeer .*address=", one.log()) and b"64:1" in self.run_program(
                "shoal", "name", "get", "one", "--connect", self.superpeer_of(one)).stdout)
        for node in (one, two):
            node.wait_ready()

    def superpeer_of(self, node):
        """Where the superpeer beside a promoted peer is."""
        return re.search(r'superpeer too .*address="([^"]*)"', node.log()).group(1)

    def test_promoted_again_at_the_address_of_before(self):
        """Its superpeer's disk is lost. The next one at that address is not taken for one of the first
        superpeers, whose IDs are their places in a list."""
        port = free_addresses(1)[0].rpartition(":")[2]
        one, two = self.peer_of("one"), self.peer_of("two", "--superpeer-port", port)
        self.assertEqual(self.shoal_json(one, "node", "promote", one.nid)["superpeer"], 2)
        self.assertEqual(self.shoal_json(two, "node", "promote", two.nid)["superpeer"], 3)
        self.vote(one, two, count=3)
        self.demote(two, "2")
        self.seen(two, 2, "left")
        harness.eventually(self, "node 2 has ended", 60, lambda: "dismissed" in one.log())
        harness.eventually(self, "it is promoted again", 60, lambda: self.run_program(
            "shoal", "node", "promote", one.nid, "--connect", two.address).returncode == 0)
        harness.eventually(self, "it votes again", 60, lambda: len(re.findall(
            "superpeers vote .*count=3 itself=1", one.log())) > 1)
        two.kill()
        self.seen(one, 3, "failed")
        for path in (self.folder / "two").glob("journal.*"):
            path.unlink()
        again = harness.Node(self, "again", "--superpeers", self.first.address, "--data-dir",
                             self.folder / "two", "--failure-ns", "1s", "--superpeer-port",
                             port).wait_ready()
        self.shoal(again, "node", "promote", again.nid)
        self.seen(again, 3, "up")
        self.assertEqual(self.states(again)[2][1], "left")
        self.assertNotIn("dismissed", again.log())

    def test_a_promoted_peer_whose_journal_is_damaged(self):
        one = self.peer_of("one")
        self.shoal(one, "node", "promote", one.nid)
        self.vote(one, count=2)
        one.kill()

        def again(name):
            return harness.Node(self, name, "--superpeers", self.first.address, "--data-dir",
                                self.folder / "one", "--failure-ns", "1s")

        journals = sorted((self.folder / "one").glob("journal.*"))
        self.assertTrue(journals)
        for path in journals:
            content = bytearray(path.read_bytes())
            content[0:64] = bytes(64)
            path.write_bytes(content)
        damaged = again("damaged")
        self.assertNotEqual(damaged.wait_end(harness.READY_MAX), 0)
        self.assertRegex(damaged.log(), "so the peer does not either: restore the files journal")
        for path in journals:
            path.unlink()
        again("without")  # of two superpeers both are needed to admit it, so it is not waited for

    def test_a_superpeer_joins(self):
        peer = self.peer_of("peer")
        more = [self.superpeer(f"superpeer{i}", "--data-dir", self.folder / f"data{i}",
                               "--superpeers", self.first.address, "--failure-ns", "1s")
                for i in (2, 3)]
        self.assertEqual([node.nid for node in more], [2, 3])
        self.vote(*more, count=3)
        self.demote(peer, "1")
        self.assertEqual(self.first.wait_end(), 0)
        self.assertEqual(list((self.folder / "data1").glob("journal.*")), [])
        late = self.peer("late", more[0], "--failure-ns", "1s")
        for node in more + [peer]:
            self.seen(node, late.nid, "up")
            self.seen(node, 1, "left")
        # It may come back as a new one.
        again = self.superpeer("again", "--data-dir", self.folder / "data1", "--superpeers",
                               more[1].address, "--failure-ns", "1s")
        self.assertEqual(again.nid, 4)
        self.seen(peer, 4, "up")

    def test_those_that_joined_later_go_on_without_the_first(self):
        """All are killed. Two of three are a majority, though they find each other only in their logs;
        or, at other addresses, in their lists."""
        addresses = free_addresses(4)

        def start(i, listen, others):
            return harness.Node(self, f"later{i}", "--roles", "superpeer", "--listen", listen,
                                "--data-dir", self.folder / f"later{i}", "--superpeers", others,
                                "--failure-ns", "1s")

        more = [start(i, addresses[i], self.first.address).wait_ready() for i in range(2)]
        self.vote(*more, count=3)
        harness.eventually(self, "each has all shards", 60, lambda: all(re.search(
            "the ring is whole .*copies=3", node.log()) for node in more))
        self.shoal(self.first, "name", "set", "one", "64:1")
        self.first.kill()
        for old in (0, 2):
            for node in more:
                node.kill()
            listen = addresses[old:old + 2]
            lists = [self.first.address] * 2 if old == 0 else listen[::-1]
            more = [start(i, listen[i], lists[i]) for i in range(2)]
            harness.eventually(self, "the name is found", harness.READY_MAX, lambda: b"64:1" in
                               self.run_program("shoal", "name", "get", "one", "--connect",
                                                listen[0]).stdout)

    def test_the_first_superpeer_loses_its_folder(self):
        more = [self.superpeer(f"superpeer{i}", "--data-dir", self.folder / f"data{i}",
                               "--superpeers", self.first.address, "--failure-ns", "1s")
                for i in (2, 3)]
        self.vote(*more, count=3)
        address = self.first.address
        self.first.kill()
        for node in more:
            self.seen(node, 1, "failed")

        def start_on_an_empty_folder(name, *flags):
            shutil.rmtree(self.folder / "data1")
            return harness.Node(self, name, "--roles", "superpeer", "--listen", address,
                                "--data-dir", self.folder / "data1", "--failure-ns", "1s", *flags)

        # Alone it founds another registry, which the others refuse; they tell it, and go on.
        stranger = start_on_an_empty_folder("stranger")
        harness.eventually(self, "the stranger withdraws", 60,
                           lambda: "takes part no longer" in stranger.log())
        late = self.peer("late", more[0], "--failure-ns", "1s")
        for node in more:
            self.seen(node, late.nid, "up")
        stranger.kill()
        # It says what to do; that done, it is the first superpeer again.
        again = start_on_an_empty_folder("again", "--superpeers",
                                         ",".join(node.address for node in more))
        again.wait_ready()
        self.vote(again, count=3)
        self.seen(again, late.nid, "up")
        self.assertNotIn("takes part no longer", again.log())


if __name__ == "__main__":
    unittest.main()
