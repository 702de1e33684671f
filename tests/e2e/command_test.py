"""The programs' own behaviour: starting and stopping, answers as JSON, statuses, signals, readiness."""
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import unittest

import harness

OK, FAILED, USAGE, NO_CLUSTER = 0, 1, 2, 3


def processes_of(folder):
    """IDs of the processes, of whatever name, whose command line names the folder."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(folder) in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue  # It ended while we looked.
    return [pid for pid in found if pid != os.getpid()]


class HalfStarted(harness.Case):
    """Whatever goes wrong while a cluster starts, nothing of it is left."""

    def setUp(self):
        super().setUp()
        self.state = self.folder / "state"
        self.addCleanup(self.end_all)

    def end_all(self):
        for pid in processes_of(self.state):
            os.kill(pid, signal.SIGKILL)

    def nothing_is_left(self):
        self.assertEqual(processes_of(self.state), [])
        self.assertFalse(self.state.exists(), "the folder is still there")

    def test_superpeer_does_not_start(self):
        self.refused("shoal", "up", "2", "--dir", self.state, "--secret-file",
                     self.folder / "nowhere", says="(?s)superpeer1 ended with status 1.*nowhere",
                     status=FAILED)
        self.nothing_is_left()

    def test_peer_does_not_start(self):
        def little_memory():
            resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

        if "asan" in str(harness.BIN) or "tsan" in str(harness.BIN):
            self.skipTest("sanitizers map more than this limit by themselves")
        done = subprocess.run([harness.BIN / "shoal", "up", "2", "--dir", self.state],
                              capture_output=True, env=harness.clean_environment(),
                              preexec_fn=little_memory, timeout=harness.COMMAND_MAX, check=False)
        self.assertEqual(done.returncode, FAILED)
        self.assertRegex(done.stderr.decode(), "(?s)peer[12] ended with status 1.*store_bytes_max")
        self.nothing_is_left()

    def hanging_programs(self):
        """A folder with shoal and a shoald that never serves."""
        folder = self.folder / "bin"
        folder.mkdir()
        shutil.copy(harness.BIN / "shoal", folder)
        hanging = folder / "shoald"
        hanging.write_text("#!/bin/sh\nwhile :; do sleep 0.1; done\n")
        hanging.chmod(0o755)
        return folder

    def start_hanging_up(self):
        program = self.hanging_programs() / "shoal"
        up = subprocess.Popen([program, "up", "1", "--dir", self.state], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=harness.clean_environment())
        self.addCleanup(up.stdout.close)
        self.addCleanup(up.wait)
        self.addCleanup(up.kill)
        harness.eventually(self, "a node is started", 30,
                           lambda: (self.state / "superpeer1.log").exists() and
                           (self.state / "cluster.json").exists())
        return up

    def test_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            up = self.start_hanging_up()
            up.send_signal(number)
            self.assertEqual(up.wait(30), FAILED)
            self.assertIn(b"interrupted", up.stdout.read())
            self.nothing_is_left()
            shutil.rmtree(self.folder / "bin")

    def test_killed(self):
        up = self.start_hanging_up()
        up.kill()
        up.wait(30)
        # Nobody could clean up; but the note names what was started.
        self.assertTrue(processes_of(self.state))
        done = self.run_program("shoal", "down", "--dir", self.state)
        self.assertEqual(done.returncode, 0, done.problem)
        self.nothing_is_left()

    def test_no_shoald(self):
        folder = self.folder / "alone"
        folder.mkdir()
        shutil.copy(harness.BIN / "shoal", folder)
        env = harness.clean_environment()
        env["PATH"] = str(folder)
        done = subprocess.run([folder / "shoal", "up", "1", "--dir", self.state],
                              capture_output=True, env=env, timeout=60, check=False)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"shoald could not be run", done.stderr)
        self.nothing_is_left()

    def test_foreign_files_stay(self):
        self.state.mkdir()
        mine = self.state / "mine"
        mine.write_text("mine")
        self.assertEqual(self.run_program("shoal", "up", "1", "--dir", self.state).returncode, 0)
        self.assertEqual(self.run_program("shoal", "down", "--dir", self.state).returncode, 0)
        self.assertEqual([path.name for path in self.state.iterdir()], ["mine"])

    def test_options_of_single_nodes_are_refused(self):
        for flag in ("--listen=127.0.0.1:0", "--roles=peer", "--data-dir=x", "--log-file=x",
                     "--local-socket=/tmp/x"):
            self.refused("shoal", "up", "1", "--dir", self.state, flag, says="shoal up. sets it",
                         status=USAGE)
        self.nothing_is_left()

    def test_wrong_numbers(self):
        for words in (["0"], ["many"], ["1000"], ["1", "--superpeers", "0"], ["1", "2"], []):
            self.refused("shoal", "up", *words, "--dir", self.state, says="usage", status=USAGE)
        self.nothing_is_left()


class Dumps(harness.Case):
    """What a cluster has dumped, the next one of the same folder loads."""

    def setUp(self):
        super().setUp()
        self.state = self.folder / "state"
        self.env = harness.clean_environment(SHOAL_STATE_DIR=self.state)
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in processes_of(self.state)])

    def ask(self, *words):
        done = self.run_program("shoal", *words, "--json", env=self.env)
        self.assertEqual(done.returncode, OK, f"{words}: {done.problem}{done.text}")
        return json.loads(done.text)

    def cycle(self, superpeers):
        words = ("up", "6", "--superpeers", superpeers, "--store-bytes-max", "64MiB")
        cids = {}
        for turn in range(2):
            nodes = self.ask(*words)["nodes"]
            peers = [node["nid"] for node in nodes if node["role"] == "peer"]
            self.assertEqual(peers, list(range(64, 70)))
            for nid in peers:
                if turn == 0:
                    made = self.ask("chunk", "create", "--text", f"of {nid}", "--node", str(nid))
                    cids[nid] = made["cids"][0]
                    self.ask("store", "dump", str(nid), "all")
                else:
                    self.ask("store", "load", str(nid), "all")
                    self.assertEqual(self.ask("chunk", "get", cids[nid])["text"], f"of {nid}")
            self.ask("down")

    def test_dump_down_up_load(self):
        self.cycle("1")

    def test_dump_down_up_load_of_two_superpeers(self):
        self.cycle("2")


class Several(harness.Case):
    """A cluster of two superpeers, through `shoal up`, and what can be asked of it."""

    def setUp(self):
        super().setUp()
        self.state = self.folder / "state"
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in processes_of(self.state)])
        self.env = harness.clean_environment(SHOAL_STATE_DIR=self.state)

    def ask(self, *words, status=OK, stdin=b""):
        """`shoal WORDS --json`, whose answer must be one line of JSON."""
        done = self.run_program("shoal", *words, "--json", env=self.env, stdin=stdin)
        self.assertEqual(done.returncode, status, f"{words}: {done.problem}{done.text}")
        self.assertEqual(done.problem, "")
        self.assertEqual(done.text.count("\n"), 1, done.text)
        return json.loads(done.text)

    def test_everything_as_json(self):
        started = self.ask("up", "2", "--superpeers", "2", "--store-bytes-max", "64MiB")
        self.assertEqual([node["role"] for node in started["nodes"]], ["superpeer"] * 2 +
                         ["peer"] * 2)
        nodes = self.ask("node", "list")["nodes"]
        self.assertEqual({node["nid"] for node in nodes},
                         {node["nid"] for node in started["nodes"]})
        self.assertEqual({node["state"] for node in nodes}, {"up"})
        peers = [node["nid"] for node in nodes if node["role"] == "peer"]

        made = self.ask("chunk", "create", "16", "--count", "1000", "--node", str(peers[1]))
        self.assertEqual(len(set(made["cids"])), 1000)
        self.assertTrue(all(cid.startswith(f"{peers[1]}:") for cid in made["cids"]))
        one = self.ask("chunk", "create", "-", stdin=b"gr\xc3\xbc\xc3\x9fe")["cids"][0]
        self.assertEqual(self.ask("chunk", "get", one),
                         {"cid": one, "size": 7, "hex": "6772c3bcc39f65",
                          "hash": "5746690366ebbcad", "text": "grüße"})
        self.assertEqual(self.ask("chunk", "put", one, "--text", "abcdefg"),
                         {"cid": one, "size": 7})
        into = self.folder / "chunk"
        self.assertEqual(self.ask("chunk", "get", one, "-o", into), {"cid": one, "size": 7})
        self.assertEqual(into.read_bytes(), b"abcdefg")
        wrong = self.ask("chunk", "put", one, "--text", "x", status=FAILED)
        self.assertEqual(wrong["error"], "SHOAL_ESIZE")
        self.assertIn("7 bytes", wrong["detail"])

        status = self.ask("status")
        self.assertEqual(status["all"]["chunks"], 1001)
        self.assertEqual(status["all"]["payload_bytes"], 16 * 1000 + 7)
        self.assertGreater(status["all"]["used_bytes"], status["all"]["payload_bytes"])
        listed = self.ask("chunk", "list")
        self.assertEqual(listed["chunks"], 1001)
        self.assertEqual(self.ask("chunk", "list", str(peers[1]))["ranges"][0]["first"],
                         made["cids"][0])
        self.assertEqual(self.ask("chunk", "remove", *made["cids"][:10]), {"removed": 10})
        gone = self.ask("chunk", "remove", made["cids"][0], one, status=FAILED)
        self.assertEqual(gone["error"], "SHOAL_ENOCHUNK")
        self.assertIn(made["cids"][0], gone["detail"])
        self.assertEqual(self.ask("chunk", "list")["chunks"], 990)

        edges = self.write("edges", "1 2 likes\n2 3 likes\n1 2 knows\n")
        records = self.write("records", "1\tone\n2\ttwo of them\n")
        loaded = self.ask("graph", "load", edges, "--vertices", records, "--types")
        self.assertEqual((loaded["vertices"], loaded["edges"], loaded["relations"]), (3, 3, 2))
        vertex = self.ask("graph", "vertex", "2")
        self.assertEqual((vertex["name"], vertex["record"]), (2, "two of them"))
        self.assertEqual([(row["name"], row["relation"]) for row in vertex["out"]], [(3, "likes")])
        self.assertEqual([row["name"] for row in vertex["in"]], [1, 1])
        graph = self.ask("graph", "status")
        self.assertEqual((graph["all"]["vertices"], graph["all"]["edges"]), (3, 3))
        self.assertEqual(len(graph["nodes"]), 2)
        self.assertEqual(set(self.ask("graph", "bfs", "1")),
                         {"root", "reached", "levels", "edges_traversed", "seconds", "teps"})
        self.assertEqual(self.ask("graph", "bfs", "9", status=FAILED)["error"], "SHOAL_ENONAME")
        wrong = self.ask("graph", "load", self.write("wrong", "1 2\nx y\n"), "--replace",
                         status=FAILED)
        self.assertEqual([row["line"] for row in wrong["wrong_lines"]], [2])
        self.assertEqual(self.ask("graph", "drop"), {"dropped": True})
        self.assertFalse(self.ask("graph", "status")["all"]["loaded"])
        self.assertEqual(self.ask("graph", "drop", status=FAILED)["error"], "SHOAL_ENONAME")

        self.assertEqual(self.ask("node", "stop", str(peers[0])),
                         {"nid": peers[0], "stopped": True})
        states = {node["nid"]: node["state"] for node in self.ask("node", "list")["nodes"]}
        self.assertEqual((states[peers[0]], states[peers[1]]), ("left", "up"))
        self.assertEqual(self.ask("node", "stop", "63000", status=FAILED)["error"],
                         "SHOAL_ENONODE")
        self.assertEqual(self.ask("up", "1", status=FAILED)["error"], "SHOAL_EEXIST")
        stopped = self.ask("down")
        self.assertEqual((stopped["nodes"], stopped["stopped"], stopped["were_dead"]), (4, 3, 1))
        self.assertEqual(processes_of(self.state), [])
        self.assertEqual(self.ask("status", status=NO_CLUSTER)["error"], "SHOAL_EUNREACHABLE")
        self.assertEqual(self.ask("down", status=NO_CLUSTER)["error"], "SHOAL_EUNREACHABLE")
        self.assertEqual(self.ask("statsu", status=USAGE)["error"], "SHOAL_EINVAL")
        self.assertEqual(self.ask("status", "--connect", "x", status=USAGE)["error"],
                         "SHOAL_EINVAL")
        self.assertIn({"error": "SHOAL_OK", "number": 0, "text": "success", "hint": ""},
                      self.ask("errors"))

    def test_parts_sizes_and_conditions(self):
        self.ask("up", "1", "--store-bytes-max", "64MiB")
        cid = self.ask("chunk", "create", "24")["cids"][0]
        self.assertEqual(self.ask("chunk", "add", cid, "-5"),
                         {"cid": cid, "old": 0, "new": 2 ** 64 - 5})
        self.assertEqual(self.ask("chunk", "add", cid, "7"),
                         {"cid": cid, "old": 2 ** 64 - 5, "new": 2})
        self.assertEqual(self.ask("chunk", "add", cid, "-1", "--offset", "8", "--width", "4"),
                         {"cid": cid, "old": 0, "new": 2 ** 32 - 1})
        done = self.run_program("shoal", "chunk", "add", cid, "40", env=self.env)
        self.assertEqual((done.returncode, done.text), (OK, "42\n"))
        self.assertEqual(self.ask("chunk", "put", cid, "--offset", "16", "--text", "hello"),
                         {"cid": cid, "size": 5})
        part = self.ask("chunk", "get", cid, "--offset", "16", "--size", "5")
        self.assertEqual((part["text"], part["size"]), ("hello", 5))
        self.assertEqual(self.ask("chunk", "get", cid, "--offset", "20")["hex"], "6f000000")
        self.assertEqual(self.ask("chunk", "get", cid)["hex"],
                         "2a00000000000000ffffffff0000000068656c6c6f000000")
        for words in (["get", cid, "--offset", "20", "--size", "5"], ["get", cid, "--offset", "25"],
                      ["put", cid, "--offset", "20", "--text", "hello"],
                      ["add", cid, "1", "--offset", "17"]):
            wrong = self.ask("chunk", *words, status=FAILED)
            self.assertEqual(wrong["error"], "SHOAL_ESIZE", words)
            self.assertIn("24 bytes", wrong["detail"])

        self.assertEqual(self.ask("chunk", "resize", cid, "5"), {"cid": cid, "size": 5})
        self.ask("chunk", "put", cid, "--text", "hello")
        self.ask("chunk", "put-if", cid, "--expect", "hello", "--text", "world")
        wrong = self.ask("chunk", "put-if", cid, "--expect-hex", "68656c6c6f", "--text", "other",
                         status=FAILED)
        self.assertEqual(wrong["error"], "SHOAL_EDIFFERS")
        known = self.ask("chunk", "get", cid)
        self.assertEqual(known["text"], "world")
        self.ask("chunk", "put-if", cid, "--expect-hash", known["hash"], "--text", "again")
        self.assertEqual(self.ask("chunk", "get", cid)["text"], "again")
        self.ask("chunk", "resize", cid, "5MiB")
        self.assertEqual(self.ask("status")["all"]["payload_bytes"], 5 << 20)
        self.assertEqual(self.ask("chunk", "resize", cid, "100MiB", status=FAILED)["error"],
                         "SHOAL_ETOOBIG")
        self.assertEqual(self.ask("chunk", "resize", cid, "60MiB", status=FAILED)["error"],
                         "SHOAL_EFULL")
        self.ask("chunk", "remove", cid)
        for words in (["resize", cid, "1"], ["add", cid, "1"], ["get", cid, "--offset", "0"],
                      ["put-if", cid, "--expect", "", "--text", ""]):
            self.assertEqual(self.ask("chunk", *words, status=FAILED)["error"], "SHOAL_ENOCHUNK")

    def test_killed_peer_and_superpeer_of_an_up_cluster(self):
        started = self.ask("up", "2", "--failure-ns", "1s", "--heartbeat-ns", "50ms")
        superpeer, lost, kept = started["nodes"]
        cid = self.ask("chunk", "create", "--text", "survives", "--node", str(kept["nid"]))["cids"][0]
        gone = self.ask("chunk", "create", "--text", "lost", "--node", str(lost["nid"]))["cids"][0]
        os.kill(lost["pid"], signal.SIGKILL)

        def states():
            return {node["nid"]: node["state"] for node in self.ask("node", "list")["nodes"]}

        harness.promptly(self, "the peer is declared failed",
                         lambda: states()[lost["nid"]] == "failed")
        self.assertEqual(states()[kept["nid"]], "up")
        self.assertEqual(self.ask("chunk", "get", gone, status=FAILED)["error"], "SHOAL_EFAILED")
        # Without its superpeer a peer goes on.
        os.kill(superpeer["pid"], signal.SIGKILL)
        self.assertEqual(self.ask("status", "--connect", kept["address"])["all"]["chunks"], 1)
        # Started again with what it had, it knows its peers, and the cluster is whole.
        words = [harness.BIN / "shoald", "--roles", "superpeer", "--listen", superpeer["address"],
                 "--data-dir", self.state / "superpeer1.data", "--ready-file",
                 self.state / "again.ready"]
        again = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, env=harness.clean_environment())
        self.addCleanup(again.wait)
        self.addCleanup(again.terminate)
        harness.eventually(self, "the superpeer serves", harness.READY_MAX,
                           (self.state / "again.ready").exists)
        harness.eventually(self, "the peer is back", 60, lambda: states().get(kept["nid"]) == "up")
        self.assertEqual(self.ask("chunk", "get", cid)["text"], "survives")


class Daemon(harness.Case):
    """What shoald promises to whoever runs it."""

    def test_service_manager_is_told(self):
        path = self.folder / "notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(path))
            manager.settimeout(harness.READY_MAX)
            node = harness.Node(self, "superpeer", "--roles", "superpeer",
                                env=harness.clean_environment(NOTIFY_SOCKET=path))
            self.assertEqual(manager.recv(64), b"READY=1")
            self.assertTrue(node.is_ready())
            node.stop()
            self.assertEqual(manager.recv(64), b"STOPPING=1")

    def test_ready_file(self):
        node = self.superpeer()
        lines = dict(line.split("=") for line in node.ready_file.read_text().splitlines())
        self.assertEqual(lines, {"nid": "1", "address": node.address,
                                 "pid": str(node.process.pid)})
        node.stop()
        self.assertFalse(node.ready_file.exists())
        self.refused("shoald", "--roles", "superpeer", "--listen", "127.0.0.1:0", "--ready-file",
                     self.folder / "nowhere" / "ready", says="nowhere", status=FAILED)

    def test_signals(self):
        node = self.superpeer()
        node.process.send_signal(signal.SIGHUP)
        self.shoal(node, "status")
        node.process.send_signal(signal.SIGINT)
        self.assertEqual(node.wait_end(), 0, node.log())

    def test_the_only_superpeer_stops(self):
        """Nobody is left who could say that it has ended: the peer has it as up for ever."""
        superpeer, (peer,) = self.cluster(1)
        done = self.shoal(superpeer, "node", "stop", superpeer.nid)
        self.assertEqual(done.text, f"Node {superpeer.nid} has been told to stop.\n")
        self.assertEqual(superpeer.wait_end(), 0, superpeer.log())
        listed = json.loads(self.shoal(peer, "node", "list", "--json").text)["nodes"]
        self.assertEqual({node["state"] for node in listed}, {"up"})
        peer.stop()

    def test_peer_without_superpeer_stops(self):
        """One that has not joined yet stops just as well."""
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{closed.getsockname()[1]}"
            node = harness.Node(self, "peer", "--superpeers", address, "--failure-ns", "200ms",
                                "--heartbeat-ns", "20ms")
            harness.eventually(self, "it has begun", harness.READY_MAX, lambda: node.log() != "")
            node.stop()
            self.assertFalse(node.ready_file.exists())

    def test_print_config(self):
        done = self.run_program("shoald", "--ring-bytes", "4MiB", "--print-config",
                                env=harness.clean_environment(SHOAL_THREADS=2))
        self.assertEqual(done.returncode, 0, done.problem)
        options = json.loads(done.text)
        self.assertEqual((options["ring_bytes"], options["threads"]), (4 << 20, 2))
        # What it prints it also reads.
        path = self.write("config.json", done.text)
        again = self.run_program("shoald", "--config", path, "--print-config")
        self.assertEqual(again.text, done.text)

    def test_json_log(self):
        node = self.superpeer("superpeer", "--log-format", "json")
        node.stop()
        events = [json.loads(line)["event"] for line in node.log().splitlines()]
        self.assertIn("serving", events)
        self.assertEqual(events[-1], "stopped")

    def test_log_file(self):
        log = self.folder / "node.log"
        node = self.superpeer("superpeer", "--log-file", log)
        node.stop()
        self.assertRegex(log.read_text(), "serving node=1 nid=1 address=")
        self.assertEqual(node.log(), "")


class Words(harness.Case):
    """How commands are written, without any cluster."""

    def test_options_may_stand_anywhere(self):
        for words in (["--connect", "127.0.0.1:1", "status"], ["status", "--connect=127.0.0.1:1"]):
            self.refused("shoal", *words, says="cannot be reached", status=NO_CLUSTER)

    def test_no_cluster_says_what_to_do(self):
        env = harness.clean_environment(SHOAL_STATE_DIR=self.folder / "none")
        self.refused("shoal", "status", env=env, says=r"(?s)none.*shoal up 3.*--connect",
                     status=NO_CLUSTER)

    def test_wrong_uses(self):
        for words in ([], ["chunk"], ["chunk", "create"], ["chunk", "create", "5", "--text", "x"],
                      ["chunk", "create", "five"], ["chunk", "put", "64:1"],
                      ["chunk", "put", "64:1", "--hex", "0"], ["chunk", "get", "64"],
                      ["chunk", "get", "64:1", "--hex", "--text"], ["chunk", "list", "x"],
                      ["chunk", "get", "64:1", "--size", "2GiB"], ["chunk", "resize", "64:1"],
                      ["chunk", "resize", "64:1", "-1"], ["chunk", "add", "64:1", "five"],
                      ["chunk", "add", "64:1", "--5"], ["chunk", "add", "64:1", "1", "--width", "2"],
                      ["chunk", "put-if", "64:1", "--text", "x"],
                      ["chunk", "put-if", "64:1", "--expect", "x"],
                      ["chunk", "put-if", "64:1", "--expect", "x", "--expect-hex", "78", "--text", "y"],
                      ["chunk", "put-if", "64:1", "--expect-hash", "12", "--text", "y"],
                      ["graph", "bfs", "x"], ["graph", "vertex", "-1"], ["node", "stop", "0"],
                      ["status", "now"], ["config", "--json=1"], ["--json", "bench"]):
            with self.subTest(words=words):
                self.refused("shoal", *words, says="hint|error", status=USAGE)

    def test_config(self):
        done = self.run_program("shoal", "config", "--store-bytes-max", "2GiB")
        self.assertEqual(json.loads(done.text)["store_bytes_max"], 2 << 30)

    def test_full_disk_for_the_answer(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([harness.BIN / "shoal", "config"], stdout=full,
                                  stderr=subprocess.PIPE, env=harness.clean_environment(),
                                  timeout=60, check=False)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"could not be written", done.stderr)

    def test_help_of_a_command(self):
        done = self.run_program("shoal", "help", "graph", "load")
        self.assertRegex(done.text, "usage: shoal graph load EDGES")


if __name__ == "__main__":
    unittest.main()
