"""Clusters through the programs: up, down, join, leave, failure, restart; chunks by command."""
import json
import os
import pathlib
import re
import signal
import unittest

import harness


def first_cid(text):
    """The chunk ID in what `shoal chunk create` prints: NODE:LOCAL."""
    return re.search(r"\b[0-9]+:[0-9]+\b", text).group(0)


def hex_cid(cid):
    """The same ID in its other form, 16 hexadecimal digits."""
    node, local = cid.split(":")
    return f"{int(node) << 48 | int(local):016x}"


def nodes_of(state):
    """Process IDs of every shoald whose command line or environment names the folder."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().strip() != "shoald":
                continue
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue  # It ended while we looked.
        if os.fsencode(state) in words:
            found.append(int(process.name))
    return found


class UpAndDown(harness.Case):
    def setUp(self):
        super().setUp()
        self.state = self.folder / "state"
        self.addCleanup(self.end_all)

    def end_all(self):
        for pid in nodes_of(self.state):
            os.kill(pid, signal.SIGKILL)

    def up(self, *words):
        done = self.run_program("shoal", "up", *words, "--dir", self.state)
        self.assertEqual(done.returncode, 0, done.problem)
        return done

    def test_up_status_down(self):
        self.up("2")
        self.assertEqual(len(nodes_of(self.state)), 3)
        done = self.run_program("shoal", "node", "list", "--dir", self.state)
        self.assertEqual(done.returncode, 0, done.problem)
        self.assertEqual(len(re.findall(r"\bpeer\b", done.text)), 2, done.text)
        self.assertEqual(len(re.findall(r"\bsuperpeer\b", done.text)), 1, done.text)
        # The variable finds the cluster as the flag does.
        done = self.run_program("shoal", "status",
                                env=harness.clean_environment(SHOAL_STATE_DIR=self.state))
        self.assertEqual(done.returncode, 0, done.problem)
        self.assertRegex(done.text, r"longest steps of any node:\n +\S+ \S.* ms +\d+ above 1 ms\n")
        done = self.run_program("shoal", "status", "--json", "--dir", self.state)
        steps = json.loads(done.text)["steps"]
        self.assertEqual(len(steps), 3)
        for node in steps:
            kinds = {row["kind"]: row["longest_ns"] for row in node["kinds"]}
            self.assertGreater(kinds["step transport"], 0)
            self.assertGreater(kinds["transport hello"], 0)
        done = self.run_program("shoal", "down", "--dir", self.state)
        self.assertEqual(done.returncode, 0, done.problem)
        self.assertEqual(nodes_of(self.state), [])

    def test_up_again_with_logs(self):
        """What peers have logged goes with the cluster, and so does not keep the next one from starting."""
        flags = ("2", "--replicas", "1", "--replicas-at", "peers", "--log-segment-bytes", "1MiB")
        for _ in range(2):
            self.up(*flags)
            done = self.run_program("shoal", "chunk", "create", "--text", "hello", "--dir", self.state)
            self.assertEqual(done.returncode, 0, done.problem)
            self.assertTrue((self.state / "peer1.data" / "replicas.log").exists())
            self.assertEqual(self.run_program("shoal", "down", "--dir", self.state).returncode, 0)
            self.assertFalse(self.state.exists())

    def test_up_twice_is_refused_and_harmless(self):
        self.up("1")
        running = sorted(nodes_of(self.state))
        self.refused("shoal", "up", "1", "--dir", self.state, says="(?i)running|up already|exists")
        self.assertEqual(sorted(nodes_of(self.state)), running)
        self.assertEqual(self.run_program("shoal", "down", "--dir", self.state).returncode, 0)

    def test_down_after_a_node_died(self):
        self.up("2")
        os.kill(nodes_of(self.state)[0], signal.SIGKILL)
        done = self.run_program("shoal", "down", "--dir", self.state)
        self.assertEqual(done.returncode, 0, done.problem)
        self.assertEqual(nodes_of(self.state), [])


class Chunks(harness.Case):
    def test_create_put_get_list_remove(self):
        node, _ = self.cluster(2)
        cid = first_cid(self.shoal(node, "chunk", "create", "5").text)
        self.assertEqual(self.shoal(node, "chunk", "get", cid, "--raw").stdout, bytes(5))
        self.shoal(node, "chunk", "put", cid, "--text", "hello")
        self.assertEqual(self.shoal(node, "chunk", "get", cid, "--raw").stdout, b"hello")
        self.assertIn("hello", self.shoal(node, "chunk", "get", cid, "--text").text)
        self.assertIn("68656c6c6f", self.shoal(node, "chunk", "get", cid, "--hex").text)
        self.shoal(node, "chunk", "put", cid, "--hex", "00ff10203a")
        self.assertEqual(self.shoal(node, "chunk", "get", cid, "--raw").stdout,
                         b"\x00\xff\x10\x20\x3a")
        self.shoal(node, "chunk", "put", cid, "--raw", stdin=b"\x01\x02\x03\x04\x05")
        self.assertEqual(self.shoal(node, "chunk", "get", cid, "--raw").stdout,
                         b"\x01\x02\x03\x04\x05")
        # Either form of the ID means the same chunk.
        self.assertEqual(self.shoal(node, "chunk", "get", hex_cid(cid), "--text").stdout,
                         self.shoal(node, "chunk", "get", cid, "--text").stdout)
        self.assertIn(cid, self.shoal(node, "chunk", "list").text)
        self.assertIn(cid, self.shoal(node, "chunk", "list", cid.split(":")[0]).text)
        self.refused("shoal", "chunk", "put", cid, "--text", "longer than five", "--connect",
                     node.address, says="has 5 bytes")
        self.shoal(node, "chunk", "remove", cid)
        self.refused("shoal", "chunk", "get", cid, "--connect", node.address,
                     says="does not exist")


class Members(harness.Case):
    def states(self, node):
        """State by address, from the superpeer's view."""
        text = self.shoal(node, "node", "list").text
        found = {}
        for line in text.splitlines():
            address = re.search(r"\d+\.\d+\.\d+\.\d+:\d+", line)
            state = re.search(r"\b(up|left|failed)\b", line)
            if address and state:
                found[address.group(0)] = state.group(1)
        return found

    def test_orderly_leave(self):
        superpeer, peers = self.cluster(2)
        peers[0].stop()
        harness.eventually(self, "the peer has left", 30,
                           lambda: self.states(superpeer).get(peers[0].address) != "up")
        self.assertNotEqual(self.states(superpeer).get(peers[0].address), "failed")
        self.assertEqual(self.states(superpeer)[peers[1].address], "up")

    def test_killed_peer_is_declared_failed(self):
        superpeer, peers = self.cluster(2, "--failure-ns", "1s")
        peers[0].kill()
        harness.promptly(self, "the peer is declared failed",
                         lambda: self.states(superpeer).get(peers[0].address) == "failed")
        # The rest goes on.
        cid = first_cid(self.shoal(superpeer, "chunk", "create", "8").text)
        self.shoal(superpeer, "chunk", "put", cid, "--text", "survives")
        self.assertEqual(self.shoal(superpeer, "chunk", "get", cid, "--raw").stdout, b"survives")

    def test_restarted_superpeer_finds_its_peers_again(self):
        data = self.folder / "registry"
        superpeer = self.superpeer("superpeer", "--data-dir", data)
        peer = self.peer("peer", superpeer)
        cid = first_cid(self.shoal(superpeer, "chunk", "create", "8").text)
        self.shoal(superpeer, "chunk", "put", cid, "--text", "survives")
        superpeer.kill()
        again = self.superpeer("again", "--data-dir", data, "--listen", superpeer.address)
        harness.eventually(self, "the peer is back", 60,
                           lambda: self.states(again).get(peer.address) == "up")

        def readable():
            done = self.run_program("shoal", "chunk", "get", cid, "--raw", "--connect",
                                    again.address)
            return done.returncode == 0 and done.stdout == b"survives"

        harness.eventually(self, "the chunk can be read", 60, readable)
        new = first_cid(self.shoal(again, "chunk", "create", "8").text)
        self.assertNotEqual(new, cid, "an ID was given out twice")


    def test_log_levels_of_a_running_node(self):
        superpeer, peers = self.cluster(1)
        self.shoal(superpeer, "status")
        self.assertNotIn(" debug ", peers[0].log())
        self.shoal(superpeer, "node", "log", peers[0].nid, "info,msg=debug")
        self.shoal(superpeer, "status")
        harness.eventually(self, "the peer logs more", 30, lambda: " debug " in peers[0].log())
        self.refused("shoal", "node", "log", peers[0].nid, "info,msg=chatty", "--connect",
                     superpeer.address, says='"msg=chatty"|"chatty"')


class Help(harness.Case):
    COMMANDS = ([], ["up"], ["down"], ["status"], ["node", "list"], ["chunk", "create"],
                ["chunk", "get"], ["chunk", "put"], ["chunk", "remove"], ["chunk", "list"],
                ["graph", "load"], ["graph", "vertex"], ["graph", "bfs"], ["graph", "status"],
                ["bench"], ["config"])

    def test_every_command_has_help(self):
        for command in self.COMMANDS:
            with self.subTest(command=command):
                done = self.run_program("shoal", *command, "--help")
                self.assertEqual(done.returncode, 0, done.problem)
                self.assertRegex(done.text, "(?i)usage")
                self.assertRegex(done.text, "(?i)example")

    def test_versions_agree(self):
        version = (harness.ROOT / "VERSION").read_text().strip()
        for program in ("shoal", "shoald"):
            done = self.run_program(program, "--version")
            self.assertEqual(done.returncode, 0, done.problem)
            self.assertIn(version, done.text)


if __name__ == "__main__":
    unittest.main()
