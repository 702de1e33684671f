"""A cluster on seven machines (network namespaces) whose network is cut and healed."""
import random
import re
import subprocess
import time
import unittest

import harness
import network
import register

# Machines. Everything that a client could be cut from has one of its own.
SUPERPEERS = (1, 2, 3)
PEERS = (4, 5, 6)
CLIENT = 7
OTHER_CLIENT = 8
PORT = 4100
UNCLEAR = re.compile("SHOAL_(ETIMEOUT|ECONNLOST)")  # whether it was done, nobody knows
# What a client says of names that it can't ask about, with a sentence.
CLEAR = re.compile("SHOAL_(EBUSY|EUNREACHABLE|ETIMEOUT) .{10,}")
# A peer that was cut off for too long begins its next life, with what its log has.
LOGGED = ("--replicas", "1", "--replicas-at", "self", "--durability", "replicated",
          "--store-bytes-max", "64MiB")
HEALED_MAX = 120  # seconds until all is well again; reached only when something is wrong


class Partition(harness.Case):
    @classmethod
    def setUpClass(cls):
        reason = network.why_not()
        if reason:
            raise unittest.SkipTest(reason)

    def setUp(self):
        super().setUp()
        self.secret = self.write("secret", "of the test of partitions")
        self.net = network.Network(OTHER_CLIENT)
        self.addCleanup(self.net.remove)
        self.nodes = {}
        for machine in SUPERPEERS:
            self.nodes[machine] = self.start(machine, "superpeer", "--data-dir",
                                             self.folder / f"data{machine}")
        for machine in PEERS:
            self.nodes[machine] = self.start(machine, "peer", "--data-dir",
                                             self.folder / f"data{machine}", *LOGGED)
        for node in self.nodes.values():
            node.wait_ready()
        # What a superpeer that is cut off has alone waits for it.
        harness.ring_whole(self, [self.nodes[machine] for machine in SUPERPEERS])

    def at(self, machine, port=PORT):
        return f"{self.net.address(machine)}:{port}"

    def start(self, machine, role, *flags, port=PORT):
        return harness.Node(
            self, f"{role}{machine}-{port}", "--roles", role, "--listen", self.at(machine, port),
            "--superpeers", ",".join(self.at(one) for one in SUPERPEERS), "--secret-file",
            self.secret, "--failure-ns", "1s", "--peer-silence-ns", "1s", *flags,
            prefix=self.net.prefix(machine))

    def client(self, *addresses, machine=CLIENT, timeout_s=20, opens=True):
        """A client on a machine of its own; by default it knows all superpeers."""
        return harness.Client(self, addresses or [self.at(one) for one in SUPERPEERS],
                              timeout_s * 1_000_000_000, self.secret,
                              prefix=self.net.prefix(machine), opens=opens)

    def seen(self, client, node, state):
        """Waits until the client has been told of a node's state. Superpeers may not hear each other yet."""
        nid = node if isinstance(node, int) else node.nid
        harness.eventually(self, f"node {nid} is {state}", HEALED_MAX,
                           lambda: client.states(unless=CLEAR).get(nid) == state)

    def readable(self, client, cid, text):
        harness.eventually(self, f"{cid} can be read", HEALED_MAX,
                           lambda: client.ask("get", cid) == f"ok {text}")

    def chunk(self, client, peer, text):
        """A chunk on a peer, with that content."""
        self.seen(client, peer, "up")
        cid = client.do("create", len(text), peer.nid)
        client.do("put", cid, text)
        return cid

    def leader(self):
        """The machine of the superpeer that led last, by the logs: the highest term wins."""
        best = (-1, 0)
        for machine in SUPERPEERS:
            terms = re.findall(r"raft +this superpeer leads .*term=(\d+)", self.nodes[machine].log())
            if terms:
                best = max(best, (int(terms[-1]), machine))
        self.assertGreater(best[0], 0, "nobody leads")
        return best[1]

    def refuses(self, machine):
        """Whether that superpeer, asked alone, says that it hears no majority."""
        asked = self.client(self.at(machine), timeout_s=1, opens=False)
        self.assertTrue(asked.opened == "ok" or "no majority" in asked.opened, asked.opened)
        asked.end()
        return asked.opened != "ok"

    def test_a_minority_answers_nothing(self):
        """The leader is cut off: it falls silent, and the others elect another."""
        client = self.client()
        cid = self.chunk(client, self.nodes[4], "before")
        cut = self.leader()
        others = [machine for machine in SUPERPEERS if machine != cut]
        self.net.cut([cut], [*others, *PEERS])
        # A client can still ask it, and is not told what may be wrong by now.
        harness.eventually(self, "it refuses", HEALED_MAX, lambda: self.refuses(cut))
        majority = self.client(*[self.at(machine) for machine in others])
        self.seen(majority, cut, "failed")
        self.assertNotEqual(self.leader(), cut)
        late = self.start(6, "peer", port=PORT + 1).wait_ready()
        self.seen(majority, late, "up")
        self.readable(majority, cid, "before")
        during = self.chunk(majority, late, "during")
        # This one began with the superpeer that is cut off among its addresses.
        self.seen(client, late, "up")
        self.readable(client, during, "during")
        self.assertTrue(self.refuses(cut))
        self.net.heal()
        self.seen(majority, cut, "up")
        harness.eventually(self, "it answers", HEALED_MAX, lambda: not self.refuses(cut))
        healed = self.client(self.at(cut))
        self.seen(healed, late, "up")
        self.readable(healed, cid, "before")
        self.readable(healed, during, "during")

    def test_nobody_answers_without_a_majority(self):
        """No superpeer hears another: none says who is a member, until it does again."""
        client = self.client()
        cid = self.chunk(client, self.nodes[5], "stays")
        for machine in SUPERPEERS:
            self.net.cut([machine], [one for one in SUPERPEERS if one > machine])
        for machine in SUPERPEERS:
            harness.eventually(self, "it refuses", HEALED_MAX, lambda: self.refuses(machine))
        late = self.start(6, "peer", port=PORT + 1)
        self.assertTrue(all(self.refuses(machine) for machine in SUPERPEERS))
        self.assertFalse(late.ready_file.exists())
        self.net.heal()
        late.wait_ready()
        self.seen(client, late, "up")
        for machine in PEERS:
            self.seen(client, self.nodes[machine], "up")
        self.readable(client, cid, "stays")

    def cut_peer(self, cut):
        """A peer is cut from the superpeers by cut(), declared failed, and its next life begins when it heals."""
        client = self.client()
        peer = self.nodes[4]
        cid = self.chunk(client, peer, "keep it")
        other = self.chunk(client, self.nodes[5], "another")
        cut()
        self.seen(client, peer, "failed")
        self.assertEqual(client.do("get", other), "another")
        # Who learns of it now is told that the chunk can't be had, not something else.
        late = self.client(self.at(2), machine=OTHER_CLIENT)
        self.seen(late, peer, "failed")
        self.assertRegex(late.ask("get", cid), "^SHOAL_(EFAILED|EUNREACHABLE|ETIMEOUT)")
        self.net.heal()
        self.seen(client, peer, "up")
        self.readable(client, cid, "keep it")
        self.readable(late, cid, "keep it")
        self.readable(client, other, "another")

    def test_a_peer_is_cut_from_the_superpeers(self):
        self.cut_peer(lambda: self.net.cut([4], SUPERPEERS))

    def test_a_peer_is_not_heard(self):
        self.cut_peer(lambda: self.net.cut_one_way([4], SUPERPEERS))

    def test_a_peer_hears_nothing(self):
        self.cut_peer(lambda: self.net.cut_one_way(SUPERPEERS, [4]))

    def test_a_leader_is_not_heard(self):
        """One way only: what the leader sends is lost, what it is sent arrives."""
        client = self.client()
        cut = self.leader()
        others = [machine for machine in SUPERPEERS if machine != cut]
        self.net.cut_one_way([cut], others)
        majority = self.client(*[self.at(machine) for machine in others])
        self.seen(majority, cut, "failed")
        self.assertIn(self.leader(), others)
        late = self.start(6, "peer", port=PORT + 1).wait_ready()
        self.seen(majority, late, "up")
        self.net.heal()
        self.seen(client, cut, "up")
        harness.eventually(self, "it answers", HEALED_MAX, lambda: not self.refuses(cut))
        self.seen(self.client(self.at(cut)), late, "up")

    def test_an_error_says_what_is_known(self):
        """A put is done, but its answer lost, and then its node has failed: that is no plain no."""
        client = self.client()
        cid = self.chunk(client, self.nodes[4], "old")
        self.net.cut_one_way([4], [CLIENT])
        self.net.cut([4], SUPERPEERS)
        said = client.ask("put", cid, "new")
        self.assertRegex(said, UNCLEAR)
        self.net.heal()
        self.seen(client, self.nodes[4], "up")
        harness.eventually(self, "it can be read", HEALED_MAX,
                           lambda: re.match("ok (old|new)$", client.ask("get", cid)))

    def faults(self, luck):
        """One random cut: two groups of any machines, both ways or one."""
        machines = [*SUPERPEERS, *PEERS, CLIENT]
        luck.shuffle(machines)
        some = machines[:luck.randrange(1, len(machines))]
        others = [machine for machine in machines if machine not in some]
        print(f"cut {some} from {others}")
        luck.choice((self.net.cut, self.net.cut_one_way))(some, others)

    def test_chunks_move_while_cut(self):
        """A migration is cut in the midst: each chunk has one owner, and all of them are there."""
        # What is under way may stand still for as long as the cut, so calls give up early.
        client, reader = (self.client(machine=one, timeout_s=2) for one in (CLIENT, OTHER_CLIENT))
        one, two = self.nodes[4], self.nodes[5]
        self.seen(client, one, "up")
        self.seen(client, two, "up")
        chunks = [Chunk(client, one) for _ in range(10)]
        filler = [client.do("create", 4096, one.nid) for _ in range(400)]
        chunks += [Chunk(client, one) for _ in range(10)]
        for turn, (source, target) in enumerate(((one, two), (two, one))):
            moving = self.migration(source, target)
            for cid in filler[::100]:  # So that it is under way.
                reader.do("size", cid)
            # The target loses the source, or the superpeers lose it.
            self.net.cut([4], [5] if turn == 0 else SUPERPEERS)
            if turn == 0:
                # Both know the superpeers, so one of the two serves each chunk, and says so soon.
                self.all_there(chunks, client, reader)
            for chunk in chunks[::7]:
                chunk.write(client)
                chunk.read(reader)
            self.net.heal()
            said = moving.communicate(timeout=HEALED_MAX)[0]
            print(said.decode().strip())  # It may have failed; whatever it moved is moved.
            self.seen(client, one, "up")
            self.all_there(chunks, client, reader)

    def all_there(self, chunks, client, reader):
        """Waits until each can be written and read."""
        for chunk in chunks:
            for act in (lambda: chunk.write(client), lambda: chunk.read(reader),
                        lambda: chunk.count(client)):
                harness.eventually(self, f"{chunk.cid} is there", HEALED_MAX, act)

    def migration(self, source, target):
        """`shoal migrate`, at such a rate that it takes some seconds; it is begun, not waited for."""
        process = subprocess.Popen(
            [*self.net.prefix(CLIENT), harness.BIN / "shoal", "migrate", str(source.nid), "--to",
             str(target.nid), "--rate", "500KiB", "--secret-file", str(self.secret), "--connect",
             self.at(1)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=harness.clean_environment(), cwd=self.folder)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, HEALED_MAX)
        return process

    def test_acknowledged_writes_are_there(self):
        """Cuts at random, while one client writes and another reads: nobody is fooled."""
        luck = random.Random(harness.seed())
        writer = self.client(timeout_s=2)
        reader = self.client(machine=OTHER_CLIENT, timeout_s=2)
        for machine in PEERS:
            self.seen(writer, self.nodes[machine], "up")
        chunks = [Chunk(writer, self.nodes[machine]) for machine in PEERS]
        names = [Name(writer, f"name/{number}") for number in range(8)]  # of several shards
        for _ in range(4):
            self.faults(luck)
            until = time.monotonic() + 3  # longer than failure_ns: some are declared failed
            while time.monotonic() < until:
                one = luck.choice(chunks + names)
                one.write(writer)
                one.read(reader)
            self.net.heal()
        for machine in [*SUPERPEERS, *PEERS]:
            self.seen(writer, machine if machine in SUPERPEERS else self.nodes[machine], "up")
        for one in chunks + names:
            for client in (writer, reader):
                harness.eventually(self, "it can be read", HEALED_MAX, lambda: one.read(client))
            harness.eventually(self, "it can be written", HEALED_MAX, lambda: one.write(writer))
            self.assertTrue(one.read(reader))
        for chunk in chunks:
            self.assertTrue(chunk.count(writer))

    def test_names_on_both_sides(self):
        """The leader and one client are cut off from the rest: names are given on the larger side,
        the smaller one says that it can't tell, and after all is healed all agree."""
        client = self.client()
        cut = self.leader()
        others = [machine for machine in SUPERPEERS if machine != cut]
        before = [Name(client, f"before/{number}") for number in range(8)]
        lonely = self.client(machine=OTHER_CLIENT, timeout_s=2)
        self.net.cut([cut, OTHER_CLIENT], [*others, *PEERS, CLIENT])
        majority = self.client(*[self.at(machine) for machine in others])
        self.seen(majority, cut, "failed")
        names = [Name(majority, f"during/{number}") for number in range(8)]
        for name in before:
            self.assertTrue(name.write(majority))
        for name in before[:4]:
            self.assertRegex(lonely.ask("named", name.name), CLEAR)
        for name in before[4:6]:  # Whether these are given one day nobody knows, and it says so.
            said = lonely.ask("name", name.name, "64:1000")
            self.assertRegex(said, CLEAR)
            name.value.write(1000, outcome_of(said))
        self.net.heal()
        self.seen(client, cut, "up")
        harness.eventually(self, "it answers", HEALED_MAX, lambda: not self.refuses(cut))
        for reader in (majority, lonely, self.client(self.at(cut))):
            for name in before + names:
                harness.eventually(self, f"{name.name} can be read", HEALED_MAX,
                                   lambda: name.read(reader))
        for name in before + names:
            self.assertTrue(name.write(lonely))
            self.assertTrue(name.read(client))


def outcome_of(answer):
    """What is known of a change, by its answer."""
    if answer.startswith("ok"):
        return register.ACKNOWLEDGED
    return register.UNCLEAR if UNCLEAR.match(answer) else register.REFUSED


class Chunk:
    """A chunk that one client writes rising numbers to, and a counter that it adds to. Calls come
    one after the other, whoever makes them, so what is read is checked exactly (register.py)."""

    def __init__(self, client, peer):
        self.cid = client.do("create", 8, peer.nid)
        self.counter = client.do("create", 8, peer.nid)
        client.do("put", self.cid, "00000000")
        self.number = 0
        self.value, self.sum = register.Register(0), register.Counter()

    def write(self, client):
        """Writes the next number and counts; whether both were acknowledged."""
        self.number += 1
        put = outcome_of(client.ask("put", self.cid, f"{self.number:08}"))
        self.value.write(self.number, put)
        answer = client.ask("add", self.counter, 1)
        added = outcome_of(answer)
        self.sum.add(added, int(answer[3:]) if added == register.ACKNOWLEDGED else None)
        return put == added == register.ACKNOWLEDGED

    def read(self, client):
        """Reads it, if it can be read."""
        answer = client.ask("get", self.cid)
        if answer.startswith("ok "):
            self.value.read(int(answer[3:]))
        return answer.startswith("ok ")

    def count(self, client):
        answer = client.ask("add", self.counter, 0)
        if answer.startswith("ok "):
            self.sum.read(int(answer[3:]))
        return answer.startswith("ok ")


class Name:
    """A name that one client gives to one chunk ID after the other; they need not exist."""

    def __init__(self, client, name):
        self.name = name
        self.number = 0
        client.do("name", name, "64:0")
        self.value = register.Register(0)

    def write(self, client):
        self.number += 1
        said = outcome_of(client.ask("name", self.name, f"64:{self.number}"))
        self.value.write(self.number, said)
        return said == register.ACKNOWLEDGED

    def read(self, client):
        answer = client.ask("named", self.name)
        if answer.startswith("ok "):
            self.value.read(int(answer.split(":")[1]))
        return answer.startswith("ok ")


if __name__ == "__main__":
    unittest.main()
