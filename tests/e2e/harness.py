"""Starts and stops shoal's programs for the end-to-end tests. Python 3, standard library only.

Every test gets a folder of its own. Whatever it starts is stopped by its process ID when the test
ends, however that happens: also by SIGTERM, SIGINT or SIGHUP, after which unittest cleans up nothing. Nothing sleeps for a fixed time: `eventually` polls against a deadline
that is generous enough for a slow machine under a sanitizer.

The folder of the programs is E2E_BIN, else build/debug/bin of the tree.
"""
import json
import os
import pathlib
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("E2E_BIN", ROOT / "build" / "debug" / "bin"))
DATA = ROOT / "data"

# Seconds. Reached only when something is wrong.
READY_MAX = 60
STOP_MAX = 30
COMMAND_MAX = 120

# As root, or as anybody where users may make namespaces.
NAMESPACES = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])

# What a sanitizer or an assertion writes; no message for people looks like that.
CRASH = re.compile(r"AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:|assertion failed|"
                   r"Assertion .* failed|Segmentation fault", re.IGNORECASE)

# The exit statuses that `shoal --help` and `shoald --help` name; no program ends with another one.
OK, FAILED, USAGE, NO_CLUSTER = 0, 1, 2, 3
STATUSES = {OK, FAILED, USAGE, NO_CLUSTER}

# Seconds within which a cluster with the default options goes on after a failure, several times what
# docs/benchmarks.md measured; and how often `promptly` looks within one of them where nothing is slow.
FAILOVER_MAX = 15
LOOKS_EACH_S = 8


def clean_environment(**more):
    """The environment without any SHOAL_ variable of the caller's, and with more."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_")}
    env.update({key: str(value) for key, value in more.items()})
    return env


def eventually(test, what, deadline_s, condition):
    """Returns condition()'s first true result; fails the test when there is none in time."""
    deadline = time.monotonic() + deadline_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            test.fail(f"{what}: not within {deadline_s} s")
        time.sleep(0.02)


def promptly(test, what, condition, within_s=FAILOVER_MAX):
    """The same for what has a documented time: fails when within_s are over and condition() has been
    called as often as a machine does in that time. On a slow machine, or under a sanitizer, those
    calls take longer as well; there the deadline is that of `eventually`."""
    started, looks = time.monotonic(), 0
    while True:
        result = condition()
        took = time.monotonic() - started
        if result:
            return result
        looks += 1
        if took > READY_MAX or (took > within_s and looks > within_s * LOOKS_EACH_S):
            test.fail(f"{what}: not within {within_s} s, but looked for {looks} times in {took:.1f} s")
        time.sleep(0.02)


class Node:
    """One shoald process. Its log is kept in a file, for the message of a failure."""

    def __init__(self, test, name, *flags, env=None, prefix=()):
        """prefix: words before the program's, such as `ip netns exec NAME`."""
        self.test = test
        self.name = name
        self.ready_file = test.folder / f"{name}.ready"
        self.log_path = test.folder / f"{name}.log"
        self.address = None
        self.nid = None
        self.statuses = {OK}  # that it may end with
        words = [*prefix, str(BIN / "shoald"), "--ready-file", str(self.ready_file), *map(str, flags)]
        if "--listen" not in flags:
            words += ["--listen", "127.0.0.1:0"]
        if "superpeer" in flags and not {"--data-dir", "--registry"} & set(flags):
            words += ["--registry", "memory"]
        self.ready_file.unlink(missing_ok=True)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=env or clean_environment(**test.ENVIRONMENT),
                                            cwd=test.folder)
        test.addCleanup(self.end)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def is_ready(self):
        if self.process.poll() is not None:
            self.test.fail(f"{self.name} ended with {self.process.returncode} before it was ready:"
                           f"\n{self.log()}")
        try:
            text = self.ready_file.read_text()
        except FileNotFoundError:  # not yet, or not any more, while the node's next life begins
            return False
        found = re.search(r"(?:\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\]):(\d+)", text)
        if not found:
            return False
        self.address = found.group(0)
        numbers = re.findall(r"(?<![\d.:])\d+(?![\d.:])", text.replace(self.address, " "))
        self.nid = int(numbers[0]) if numbers else None
        return True

    def wait_ready(self):
        eventually(self.test, f"{self.name} ready", READY_MAX, self.is_ready)
        return self

    def wait_end(self, deadline_s=STOP_MAX):
        """Waits until the process has ended by itself; returns its status, which the caller checks."""
        try:
            self.statuses.add(self.process.wait(deadline_s))
            return self.process.returncode
        except subprocess.TimeoutExpired:
            self.test.fail(f"{self.name} still runs after {deadline_s} s:\n{self.log()}")

    def stop(self):
        """SIGTERM, and the orderly stop that must follow."""
        self.process.send_signal(signal.SIGTERM)
        status = self.wait_end()
        self.test.assertEqual(status, 0, f"{self.name} did not stop in order:\n{self.log()}")
        self.test.assertNotRegex(self.log(), CRASH)

    def kill(self):
        """SIGKILL: what a crash or a power failure looks like to the others."""
        self.statuses.add(-signal.SIGKILL)
        self.process.kill()
        self.process.wait(STOP_MAX)

    def end(self):
        """Clean-up: stops what still runs, and says when it had not ended as it should."""
        if self.process.poll() is None:
            if not self.ready_file.exists():
                self.statuses.add(-signal.SIGTERM)  # it may not have got to its handler
            self.process.terminate()
            try:
                self.process.wait(STOP_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
                self.test.fail(f"{self.name} did not stop on SIGTERM:\n{self.log()}")
        if self.process.returncode not in self.statuses or CRASH.search(self.log()):
            self.test.fail(f"{self.name} ended with {self.process.returncode}:\n{self.log()}")


class Client:
    """A program on libshoal that keeps a cluster open (client.c): one question, one answer."""

    def __init__(self, test, addresses, timeout_ns=20_000_000_000, secret_file="", prefix=(),
                 opens=True):
        self.test = test
        self.rest = b""
        self.log_path = test.folder / f"client{id(self)}.log"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*prefix, str(BIN / "e2e_client"), ",".join(addresses), str(timeout_ns),
                 str(secret_file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env=clean_environment(), cwd=test.folder)
        test.addCleanup(self.end)
        self.opened = self.answer()
        if opens:
            test.assertEqual(self.opened, "ok", f"{addresses} can't be opened")

    def answer(self):
        """The next line of its output; "" when it has ended."""
        deadline = time.monotonic() + COMMAND_MAX
        while b"\n" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.test.fail(f"the client does not answer within {COMMAND_MAX} s")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                return ""
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode(errors="replace")

    def ask(self, *words):
        """Gives it a command; returns its answer: "ok ..." or an error's name and more."""
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()
        return self.answer()

    def do(self, *words):
        """A command that must succeed; returns what follows the "ok"."""
        answer = self.ask(*words)
        self.test.assertRegex(answer, r"^ok\b", f"{words}")
        return answer[3:]

    def states(self, unless=None):
        """State by node ID, as this client sees it; none if it is told something that matches `unless`."""
        names = {"0": "up", "1": "left", "2": "failed"}
        answer = self.ask("nodes")
        if unless and unless.match(answer):
            return {}
        self.test.assertRegex(answer, r"^ok\b", "nodes")
        return {int(nid): names[state] for nid, state, _ in
                (word.split(":", 2) for word in answer[3:].split())}

    def end(self):
        """Ends it, and says when it did not end in order: with 1 if it could not open the cluster."""
        self.process.stdin.close()
        expected = OK if self.opened == "ok" else FAILED
        try:
            self.process.wait(STOP_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_MAX)
        self.process.stdout.close()
        log = self.log_path.read_text(errors="replace")
        if self.process.returncode != expected or CRASH.search(log):
            self.test.fail(f"the client ended with {self.process.returncode}:\n{log}")


def seed():
    """What random tests begin with: E2E_SEED, or a new one; printed, so that it can be repeated."""
    found = int(os.environ.get("E2E_SEED") or time.time_ns() % 1000000)
    print(f"E2E_SEED={found}", file=sys.stderr)
    return found


def ring_whole(test, superpeers):
    """Waits until one of the superpeers has said that all of them hold each shard."""
    whole = re.compile(rf"the ring is whole\b.*\bcopies={len(superpeers)}\b")
    eventually(test, "each superpeer holds each shard", READY_MAX,
               lambda: any(whole.search(node.log()) for node in superpeers))


def on_ending_signal(number, _frame):
    """Cleans up what the running test has started, then ends as the signal would have ended us."""
    for ending in Case.ENDING:
        signal.signal(ending, signal.SIG_IGN)
    while Case.running:
        Case.running.pop().doCleanups()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


class Case(unittest.TestCase):
    """The base of all end-to-end tests: a folder, nodes, and the shoal command."""

    ENVIRONMENT = {}  # of all that a test starts, on top of the clean one
    ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    running = []  # the test that has not cleaned up yet

    def setUp(self):
        for ending in self.ENDING:
            signal.signal(ending, on_ending_signal)
        Case.running = [self]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shoal-e2e."))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def superpeer(self, name="superpeer", *flags):
        return Node(self, name, "--roles", "superpeer", *flags).wait_ready()

    def peer(self, name, superpeer, *flags):
        return Node(self, name, "--roles", "peer", "--superpeers", superpeer.address,
                    *flags).wait_ready()

    def cluster(self, peers, *flags):
        """One superpeer and some peers, ready; returns (superpeer, [peer ...])."""
        superpeer = self.superpeer("superpeer", *flags)
        return superpeer, [self.peer(f"peer{i}", superpeer, *flags) for i in range(peers)]

    def run_program(self, program, *words, stdin=b"", env=None, timeout_s=COMMAND_MAX,
                    statuses=STATUSES):
        """Runs a program to its end. Whatever it was given, it must end with one of the statuses;
        which one it was is for the caller to check."""
        done = subprocess.run([str(BIN / program), *map(str, words)], input=stdin,
                              capture_output=True, env=env or clean_environment(**self.ENVIRONMENT),
                              cwd=self.folder, timeout=timeout_s, check=False)
        done.text = done.stdout.decode(errors="replace")
        done.problem = done.stderr.decode(errors="replace")
        self.assertIn(done.returncode, statuses, f"{program} {words}: {done.problem}")
        self.assertNotRegex(done.problem, CRASH)
        return done

    def shoal(self, node, *words, stdin=b""):
        """`shoal WORDS --connect NODE`, which must succeed."""
        done = self.run_program("shoal", *words, "--connect", node.address, stdin=stdin)
        self.assertEqual(done.returncode, 0, f"shoal {words}: {done.problem}{done.text}")
        return done

    def demote(self, node, nid):
        """`shoal node demote NID`, asked of a node again while it says to retry later: on a slow machine
        the superpeers may be without a leader for a moment."""
        def is_demoted():
            done = self.run_program("shoal", "node", "demote", nid, "--connect", node.address)
            if done.returncode:
                self.assertIn("retry later", done.problem + done.text)
            return done.returncode == 0

        eventually(self, f"node {nid} is demoted", READY_MAX, is_demoted)

    def shoal_json(self, node, *words, stdin=b""):
        """The same with --json; returns the answer."""
        return json.loads(self.shoal(node, *words, "--json", stdin=stdin).text)

    def refused(self, program, *words, says, stdin=b"", env=None, status=FAILED):
        """Runs a program that must fail with this status and a message that matches `says` (an
        expression)."""
        done = self.run_program(program, *words, stdin=stdin, env=env)
        self.assertEqual(done.returncode, status, f"{program} {words}: {done.problem}{done.text}")
        self.assertRegex(done.problem + done.text, says)
        return done

    def mounting(self, commands):
        """The words before a program that have these commands of the shell, whose mounts only the program sees, carried out
        first. Where nobody may mount a file system the test is skipped."""
        for namespace in NAMESPACES:
            prefix = [*namespace, "sh", "-c", commands + ' && exec "$@"', "sh"]
            if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
                return prefix
        return self.skipTest("no file system may be mounted here")

    def mounted(self, name, commands):
        """A folder of that name, and the words before a program that mount something there: commands has it as {folder}."""
        folder = self.folder / name
        folder.mkdir()
        return folder, self.mounting(commands.format(folder=shlex.quote(str(folder))))

    def write(self, name, content):
        """A file in the test's folder."""
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path
