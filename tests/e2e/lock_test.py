"""shoal lock and shoal locks: processes exclude each other, and what falls when one is killed."""
import os
import signal
import subprocess
import unittest

import harness

FAILED, USAGE = 1, 2


class Locks(harness.Case):
    """A superpeer, a peer, and a chunk that processes want."""

    def setUp(self):
        super().setUp()
        self.superpeer_node, (self.peer_node,) = self.cluster(1, "--store-bytes-max", "64MiB")
        self.cid = self.shoal_json(self.superpeer_node, "chunk", "create", "8")["cids"][0]

    def start(self, *words):
        """A shoal process that is ended by its ID when the test is over."""
        process = subprocess.Popen(
            [str(harness.BIN / "shoal"), "lock", self.cid, "--connect",
             self.superpeer_node.address, *map(str, words)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=harness.clean_environment(), cwd=self.folder)

        def end():
            if process.poll() is None:
                process.kill()
            process.wait(harness.STOP_MAX)
            process.stdout.close()
            process.stderr.close()
        self.addCleanup(end)
        return process

    def lock(self, *words):
        """The same, run to its end."""
        connect = ("--connect", self.superpeer_node.address)
        return self.run_program("shoal", "lock", self.cid, *connect, *words, statuses=range(256))

    def locks(self):
        return self.shoal_json(self.superpeer_node, "locks")

    def await_locks(self, held, waiting):
        harness.eventually(self, f"{held} held, {waiting} waiting", harness.READY_MAX,
                           lambda: (self.locks()["held"], self.locks()["waiting"]) ==
                           (held, waiting))

    def hold(self, *words):
        """Holds the lock while a command of its own runs; returns both process IDs."""
        holder = self.start(*words, "--", "sh", "-c", "echo $$; exec sleep 600")
        command = int(holder.stdout.readline())

        def end():
            if self.runs(command):
                os.kill(command, signal.SIGKILL)
        self.addCleanup(end)
        return holder, command

    def runs(self, pid):
        """True while the command of hold runs; one that only waits to be reaped does not."""
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                return file.read().rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
        except OSError:
            return False

    def test_killed_holder(self):
        holder, command = self.hold()
        self.assertTrue(self.runs(command))
        self.assertEqual(self.locks()["locks"][0]["mode"], "write")
        done = self.lock("--wait", "0", "--", "echo", "mine")
        self.assertEqual(done.returncode, FAILED)
        self.assertRegex(done.problem, "busy.*is in the way, for writing")
        self.assertEqual(done.text, "")
        done = self.lock("--wait", "50ms", "--read", "--", "echo", "mine")
        self.assertEqual(done.returncode, FAILED)
        self.assertRegex(done.problem, "timed out")
        waiter = self.start("--", "echo", "mine")
        self.await_locks(1, 1)
        os.kill(holder.pid, signal.SIGKILL)
        self.assertEqual(waiter.wait(harness.READY_MAX), 0)
        self.assertEqual(waiter.stdout.read(), b"mine\n")
        # What ran under the lock does not go on without it.
        harness.eventually(self, "the command ends", harness.STOP_MAX,
                           lambda: not self.runs(command))
        self.await_locks(0, 0)

    def test_killed_waiter(self):
        holder, _ = self.hold()
        waiter = self.start("--", "echo", "mine")
        self.await_locks(1, 1)
        waiter.kill()
        self.await_locks(1, 0)
        holder.terminate()
        self.assertEqual(holder.wait(harness.STOP_MAX), 128 + signal.SIGTERM)
        self.await_locks(0, 0)

    def test_statuses(self):
        self.assertEqual(self.lock("--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.lock("--", "sh", "-c", "kill -KILL $$").returncode,
                         128 + signal.SIGKILL)
        done = self.lock("--", "/nowhere/to/be/found")
        self.assertEqual(done.returncode, 127)
        self.assertRegex(done.problem, "/nowhere/to/be/found could not be run(?s:.*)name and PATH")
        self.assertEqual(self.lock("--", "nosuchcmd").returncode, 127)
        self.assertEqual(self.lock("--", "/dev/null").returncode, 126)
        done = self.lock("--", "sh", "-c", "echo out; echo \"$0 $1\"", "--json", "--read")
        self.assertEqual((done.returncode, done.text), (0, "out\n--json --read\n"))
        self.assertEqual(self.locks()["held"], 0)

    def test_wrong_words(self):
        for words, says in ((["--read", "--write"], "for reading or for writing"),
                            (["--lease", "soon"], "not a time"),
                            (["--lease", "1ms"], "100 ms at least"),
                            (["--wait", "-"], "not a time")):
            done = self.lock(*words)
            self.assertEqual(done.returncode, USAGE, words)
            self.assertRegex(done.problem, says)
        connect = ("--connect", self.superpeer_node.address)
        self.refused("shoal", "lock", "here", *connect, says="not a chunk ID", status=USAGE)
        self.refused("shoal", "lock", f"{self.peer_node.nid}:999", *connect, says="does not exist",
                     status=FAILED)
        for words in (["locks", "63000"], ["node", "stop", "63000"], ["store", "dump", "63000", "x"]):
            done = self.refused("shoal", *words, *connect, says="no such node: node 63000\n",
                                status=FAILED)
            self.assertEqual(done.text, "")
        self.refused("shoal", "store", "dump", self.peer_node.nid, "../x", *connect,
                     says="shoal store dump --help", status=FAILED)
        self.refused("shoal", "locks", "--connect", "unix:p.sock", says="or unix:/PATH",
                     status=USAGE)

    def test_without_a_command(self):
        readers = [self.start("--read", "--json") for _ in range(2)]
        for reader in readers:
            self.assertIn(b'"mode":"read"', reader.stdout.readline())
        self.assertEqual(self.locks()["held"], 2)
        writer = self.start()
        self.await_locks(2, 1)
        for reader in readers:
            reader.send_signal(signal.SIGINT)
            self.assertEqual(reader.wait(harness.STOP_MAX), 0)
        self.assertIn(b"locked for writing", writer.stdout.readline())
        writer.send_signal(signal.SIGTERM)
        self.assertEqual(writer.wait(harness.STOP_MAX), 0)
        self.await_locks(0, 0)

    def test_lost_lock(self):
        holder, command = self.hold("--lease", "300ms")
        self.shoal(self.superpeer_node, "chunk", "remove", self.cid)
        self.assertEqual(holder.wait(harness.READY_MAX), FAILED)
        self.assertRegex(holder.stderr.read().decode(), "the lock is lost")
        self.assertFalse(self.runs(command))

    def test_extended(self):
        """A command that runs for longer than the lease keeps its lock."""
        holder, command = self.hold("--lease", "2s")
        done = self.lock("--wait", "3s", "--", "echo", "mine")
        self.assertEqual((done.returncode, done.text), (FAILED, ""))
        self.assertRegex(done.problem, "shoal locks. shows who holds it; --wait")
        self.assertTrue(self.runs(command))
        holder.terminate()
        self.assertEqual(holder.wait(harness.STOP_MAX), 128 + signal.SIGTERM)

    def test_counted_by_processes(self):
        self.write("count", "0\n")
        add = "n=$(cat count); echo $((n + 1)) > count"
        processes = [self.start("--", "sh", "-c", add) for _ in range(12)]
        for process in processes:
            self.assertEqual(process.wait(harness.COMMAND_MAX), 0)
        self.assertEqual((self.folder / "count").read_text(), "12\n")

    def test_lists(self):
        connect = ("--connect", self.superpeer_node.address)
        self.hold("--read")
        done = self.run_program("shoal", "locks", str(self.peer_node.nid), *connect)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.text, rf"CHUNK.*\n{self.cid} +read +holds ")


if __name__ == "__main__":
    unittest.main()
