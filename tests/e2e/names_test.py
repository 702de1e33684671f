"""Names, barriers and scratch by the shell: on one superpeer, and on three, one of which is killed
while names are set."""
import json
import re
import signal
import subprocess
import threading
import unittest

import harness
from superpeers_test import free_addresses


class Background:
    """A command that runs beside the test; it is killed when the test ends."""

    def __init__(self, test, node, *words):
        self.test = test
        self.process = subprocess.Popen(
            [str(harness.BIN / "shoal"), *map(str, words), "--connect", node.address],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=harness.clean_environment(), cwd=test.folder)
        test.addCleanup(self.end)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def kill(self):
        self.process.kill()
        self.process.wait(harness.STOP_MAX)

    def result(self):
        """Status, standard output, standard error."""
        out, problem = self.process.communicate(timeout=harness.COMMAND_MAX)
        self.test.assertIn(self.process.returncode, harness.STATUSES)
        return self.process.returncode, out.decode(), problem.decode()


class OneSuperpeer(harness.Case):
    def setUp(self):
        super().setUp()
        self.node, _ = self.cluster(1)

    def connect(self):
        return "--connect", self.node.address

    def test_names(self):
        self.shoal(self.node, "name", "set", "graph/root", "64:1")
        self.assertEqual(self.shoal(self.node, "name", "get", "graph/root").text, "64:1\n")
        self.refused("shoal", "name", "set", "graph/root", "64:2", "--absent", *self.connect(),
                     says="64:1")
        self.refused("shoal", "name", "set", "graph/root", "64:2", "--current", "64:7",
                     *self.connect(), says="64:1")
        changed = self.shoal_json(self.node, "name", "set", "graph/root", "64:2", "--current",
                                  "64:1")
        self.assertEqual(changed, {"name": "graph/root", "cid": "64:2", "previous": "64:1"})
        for i in range(40):
            self.shoal(self.node, "name", "set", f"user/{i:02}", f"64:{i + 10}")
        listed = self.shoal_json(self.node, "name", "list", "user/")["names"]
        self.assertEqual(listed, [{"name": f"user/{i:02}", "cid": f"64:{i + 10}"}
                                  for i in range(40)])
        self.assertEqual(len(self.shoal_json(self.node, "name", "list")["names"]), 41)
        self.refused("shoal", "name", "remove", "graph/root", "--current", "64:1",
                     *self.connect(), says="not what was expected.*64:2")
        self.shoal(self.node, "name", "remove", "graph/root")
        self.refused("shoal", "name", "get", "graph/root", *self.connect(), says="no such name")
        self.refused("shoal", "name", "set", "x" * 256, "64:1", *self.connect(), says="255")
        self.shoal(self.node, "name", "set", "x" * 255, "64:1")

    def test_waiting_for_a_name(self):
        waiting = Background(self, self.node, "name", "wait", "later")
        self.refused("shoal", "name", "wait", "never", "--within", "300ms", *self.connect(),
                     says="(?s)timed out.*shoal name set")
        self.assertIn("not a time", self.run_program("shoal", "name", "wait", "never", "--within",
                                                     "10", *self.connect()).problem)
        self.shoal(self.node, "name", "set", "later", "64:5")
        self.assertEqual(waiting.result()[:2], (0, "64:5\n"))

    def test_scratch(self):
        self.shoal(self.node, "scratch", "put", "a/1", "--text", "one")
        self.shoal(self.node, "scratch", "put", "a/2", "-", stdin=bytes(range(256)) * 4)
        self.assertEqual(self.shoal(self.node, "scratch", "get", "a/1").text, "one\n")
        self.assertEqual(self.shoal(self.node, "scratch", "get", "a/2", "--raw").stdout,
                         bytes(range(256)) * 4)
        self.refused("shoal", "scratch", "put", "a/3", "--text", "x" * 1025, *self.connect(),
                     says="at most 1024")
        self.assertEqual(self.shoal_json(self.node, "scratch", "list", "a/")["keys"],
                         [{"key": "a/1", "size": 3}, {"key": "a/2", "size": 1024}])
        self.shoal(self.node, "scratch", "remove", "a/1")
        self.refused("shoal", "scratch", "get", "a/1", *self.connect(), says="no such name")

    def test_scratch_has_the_limit_that_was_set(self):
        node = self.superpeer("small", "--scratch-bytes-max", "4KiB")
        at = "--connect", node.address
        for _ in range(3):  # All of one key: it is replaced.
            self.shoal(node, "scratch", "put", "a", "--text", "x" * 1000)
        refused = 0
        for i in range(300):  # 64 shards of 4 KiB have no room for 300 KB.
            done = self.run_program("shoal", "scratch", "put", f"key/{i}", "--text", "x" * 1000,
                                    *at)
            if done.returncode != 0:
                self.assertIn("limit", done.problem)
                refused += 1
                self.assertIsNone(re.search("timed out", done.problem))
        self.assertGreater(refused, 40)
        kept = self.shoal_json(node, "scratch", "list")["keys"]
        self.assertEqual(len(kept), 301 - refused)

    def signed(self, barrier, count):
        def is_so():
            status = self.shoal_json(self.node, "barrier", "status", barrier)
            return len(status["members"]) == count
        harness.eventually(self, f"{count} have signed on", 60, is_so)

    def test_barrier(self):
        barrier = self.shoal(self.node, "barrier", "create", 3).text.strip()
        for number in (1, 2):
            waiting = [Background(self, self.node, "barrier", "wait", barrier, "--text", f"m{i}",
                                  "--json") for i in range(3)]
            for one in waiting:
                status, out, problem = one.result()
                self.assertEqual(status, 0, problem)
                answer = json.loads(out)
                self.assertEqual(answer["round"], number)
                self.assertEqual({member["text"] for member in answer["members"]},
                                 {"m0", "m1", "m2"})
        self.refused("shoal", "barrier", "wait", barrier, "--within", "300ms", *self.connect(),
                     says="others have not")
        self.signed(barrier, 0)
        listed = self.shoal_json(self.node, "barrier", "list")["barriers"]
        self.assertEqual(listed, [{"barrier": barrier, "size": 3, "signed": 0, "round": 3,
                                   "survivors": False}])
        self.assertRegex(self.shoal(self.node, "barrier", "list").text, f"{barrier} +3 +0 +3\n")
        alone = Background(self, self.node, "barrier", "wait", barrier)
        self.signed(barrier, 1)
        self.shoal(self.node, "barrier", "resize", barrier, 1)
        self.assertEqual(alone.result()[0], 0)
        self.shoal(self.node, "barrier", "resize", barrier, 2)
        alone = Background(self, self.node, "barrier", "wait", barrier)
        self.signed(barrier, 1)
        self.shoal(self.node, "barrier", "free", barrier)
        self.assertIn("no such name", alone.result()[2])
        self.assertEqual(self.shoal_json(self.node, "barrier", "list")["barriers"], [])

    def test_a_member_dies(self):
        for flags, status in ((), 1), (("--survivors",), 0):
            barrier = self.shoal(self.node, "barrier", "create", 3, *flags).text.strip()
            waiting = [Background(self, self.node, "barrier", "wait", barrier) for _ in range(2)]
            self.signed(barrier, 2)
            waiting[0].kill()
            if flags:  # The barrier is for two by then; one more is enough.
                self.signed(barrier, 1)
                self.shoal(self.node, "barrier", "wait", barrier, "--within", "60s")
            result = waiting[1].result()
            self.assertEqual(result[0], status, result)
            if not flags:
                self.assertIn("a member of the barrier is gone", result[2])


    def test_who_was_taken_for_dead_is_told_so(self):
        for flags in ((), ("--survivors",)):
            barrier = self.shoal(self.node, "barrier", "create", 2, *flags).text.strip()
            paused = Background(self, self.node, "barrier", "wait", barrier)
            self.signed(barrier, 1)
            paused.process.send_signal(signal.SIGSTOP)
            self.signed(barrier, 0)
            if not flags:  # Its round is broken; another one is over when it comes back.
                self.assertEqual(self.shoal_json(self.node, "barrier", "status",
                                                 barrier)["round"], 2)
                other = Background(self, self.node, "barrier", "wait", barrier)
                self.signed(barrier, 1)
            self.shoal(self.node, "barrier", "wait", barrier, "--within", "60s")
            if not flags:
                self.assertEqual(other.result()[0], 0)
            paused.process.send_signal(signal.SIGCONT)
            status, out, problem = paused.result()
            self.assertEqual((status, out), (1, ""), problem)
            self.assertIn("taken for dead", problem)


class InMemory(harness.Case):
    """The only superpeer with its registry in memory forgets everything when it is killed."""

    def test_names_are_forgotten(self):
        address = free_addresses(1)[0]
        superpeer = self.superpeer("before", "--listen", address)
        self.peer("peer", superpeer)
        self.shoal(superpeer, "name", "set", "name/0", "64:1")
        superpeer.kill()
        again = self.superpeer("after", "--listen", address)
        self.assertIn("registry memory: when most superpeers are stopped at once, who is a member, "
                      "names and where chunks are is lost", again.log())

        def listed():
            done = self.run_program("shoal", "name", "list", "--json", "--connect", address)
            return done.returncode == 0 and json.loads(done.text)["names"] == []

        harness.eventually(self, "the superpeer answers, and has no names", 60, listed)
        self.shoal(again, "name", "set", "name/0", "64:99", "--absent")


class ThreeSuperpeers(harness.Case):
    def setUp(self):
        super().setUp()
        self.addresses = free_addresses(3)
        self.superpeers = [self.start(i, 0) for i in range(3)]
        for node in self.superpeers:
            node.wait_ready()

    def start(self, index, life):
        return harness.Node(self, f"superpeer{index}-{life}", "--roles", "superpeer",
                            "--superpeers", ",".join(self.addresses),
                            "--listen", self.addresses[index],
                            "--data-dir", self.folder / f"data{index}", "--failure-ns", "1s")

    def whole(self, node):
        """Waits until each superpeer holds everything, also this one."""
        harness.eventually(self, "all hold everything", 60,
                           lambda: re.search(r"ring is whole .*copies=3", node.log()))

    def test_one_is_killed_while_names_are_set(self):
        for node in self.superpeers:
            self.whole(node)
        acknowledged, unclear, stop = {}, set(), threading.Event()

        def write():
            number = 0
            while not stop.is_set():
                number += 1
                name = f"name/{number}"
                done = subprocess.run(
                    [str(harness.BIN / "shoal"), "name", "set", name, f"64:{number}", "--absent",
                     "--connect", ",".join(self.addresses)],
                    stdin=subprocess.DEVNULL, capture_output=True, check=False,
                    env=harness.clean_environment(), cwd=self.folder,
                    timeout=harness.COMMAND_MAX)
                if done.returncode == 0:
                    acknowledged[name] = f"64:{number}"
                else:
                    unclear.add((name, done.stderr.decode(errors="replace")))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for life in range(3):
                before = len(acknowledged)
                harness.eventually(self, "names are set", 60,
                                   lambda: len(acknowledged) > before + 30)
                self.superpeers[life].kill()
                before = len(acknowledged)
                harness.eventually(self, "names are set without one superpeer", 60,
                                   lambda: len(acknowledged) > before + 30)
                self.superpeers[life] = self.start(life, life + 1).wait_ready()
                self.whole(self.superpeers[life])
        finally:
            stop.set()
            writer.join()
        # A name of its own that was set by its first, unanswered request must not be refused.
        self.assertFalse([text for _, text in unclear if "exists already" in text])
        listed = {row["name"]: row["cid"] for row in
                  self.shoal_json(self.superpeers[0], "name", "list", "name/")["names"]}
        self.assertEqual({name: listed.get(name) for name in acknowledged}, acknowledged)


if __name__ == "__main__":
    unittest.main()
