"""Three superpeers that share their registry, as real processes: one is killed, all are killed."""
import re
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


class SharedRegistry(harness.Case):
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
                            "--data-dir", self.folder / f"data{index}", "--failure-ns", "1s")

    def join(self, name, wait=True):
        node = harness.Node(self, name, "--roles", "peer", "--superpeers",
                            ",".join(self.addresses), "--failure-ns", "1s")
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
        harness.eventually(self, f"{address} is {state} at {node.address}", 60,
                           lambda: self.states(node).get(address) == state)

    def leader(self):
        """The index of the superpeer that led last, by the logs: the highest term wins."""
        best = (-1, 0)
        for index, node in enumerate(self.superpeers):
            terms = re.findall(r"raft +leads .*term=(\d+)", node.log())
            if terms:
                best = max(best, (int(terms[-1]), index))
        self.assertGreater(best[0], 0, "nobody leads")
        return best[1]

    def test_leader_is_killed(self):
        peers = [self.join("peer0"), self.join("peer1")]
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

    def test_another_list_is_refused(self):
        self.join("peer")
        for node in self.superpeers:
            node.kill()
        done = self.refused("shoald", "--roles", "superpeer", "--superpeers", self.addresses[0],
                            "--listen", self.addresses[0], "--data-dir", self.folder / "data0",
                            says="raft.log|another cluster")
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
