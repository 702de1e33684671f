"""Machines made of network namespaces, and packet filters that cut them from each other.

A Network is a row of namespaces on one bridge, which lies in a namespace of its own, so that
nothing of the machine's own network changes. Faults are rules of nftables that drop, silently, what
arrives at a namespace: the sender learns nothing, as with a cable that is cut. It takes root, and a
kernel that permits it; where that is missing, `why_not` says so and tests are skipped.

All names hold this process's ID, and whatever was made is removed when the test ends, or the
process does.
"""
import atexit
import os
import shutil
import signal
import subprocess
import sys

COMMAND_MAX = 60  # seconds
LIVING = []       # the networks that are to be removed


def run(*words):
    """Runs a command; its output. Raises when it fails."""
    done = subprocess.run([str(word) for word in words], capture_output=True, timeout=COMMAND_MAX,
                          stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, words))}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode(errors="replace")


def why_not():
    """Why namespaces and packet filters can't be had here, as a sentence; "" if they can."""
    for program, package in (("ip", "iproute2"), ("nft", "nftables")):
        if not shutil.which(program):
            return f"network namespaces need the program {program} (Debian package {package})"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        trial = Network(1)
    except OSError as problem:
        return f"network namespaces are not permitted here: {problem}"
    trial.remove()
    return ""


def remove_all():
    for network in list(LIVING):
        network.remove()


def on_terminate(number, frame):
    remove_all()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


class Network:
    """Machines 1 to count, with the addresses 10.77.0.1 and so on."""
    made = 0

    def __init__(self, count):
        Network.made += 1
        self.count = 0
        self.name = f"shoal{os.getpid()}-{Network.made}"
        if not LIVING:
            atexit.register(remove_all)
            if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
                signal.signal(signal.SIGTERM, on_terminate)
        LIVING.append(self)
        try:
            run("ip", "netns", "add", f"{self.name}-bridge")
            run("ip", "-n", f"{self.name}-bridge", "link", "add", "br0", "type", "bridge")
            run("ip", "-n", f"{self.name}-bridge", "link", "set", "br0", "up")
            for machine in range(1, count + 1):
                self.add(machine)
        except OSError:
            self.remove()
            raise

    def add(self, machine):
        space, bridge = self.space(machine), f"{self.name}-bridge"
        run("ip", "netns", "add", space)
        self.count = machine
        run("ip", "-n", space, "link", "set", "lo", "up")
        run("ip", "-n", bridge, "link", "add", f"port{machine}", "type", "veth", "peer", "name",
            "eth0", "netns", space)
        run("ip", "-n", bridge, "link", "set", f"port{machine}", "master", "br0", "up")
        run("ip", "-n", space, "addr", "add", f"{self.address(machine)}/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        self.filter(machine, "add table inet faults; add chain inet faults arriving "
                    "{ type filter hook input priority 0; }")

    def space(self, machine):
        return f"{self.name}-{machine}"

    def address(self, machine):
        return f"10.77.0.{machine}"

    def prefix(self, machine):
        """The words before a program's that let it run on a machine."""
        return ("ip", "netns", "exec", self.space(machine))

    def filter(self, machine, rule):
        run(*self.prefix(machine), "nft", rule)

    def cut_one_way(self, senders, receivers):
        """What the senders send does not arrive at the receivers."""
        for receiver in receivers:
            for sender in senders:
                if sender != receiver:
                    self.filter(receiver, "add rule inet faults arriving ip saddr "
                                f"{self.address(sender)} drop")

    def cut(self, some, others):
        """Nothing passes between the two groups."""
        self.cut_one_way(some, others)
        self.cut_one_way(others, some)

    def heal(self):
        for machine in range(1, self.count + 1):
            self.filter(machine, "flush chain inet faults arriving")

    def remove(self):
        """Removes all of it. What fails is told, and does not keep the rest from being removed."""
        if self not in LIVING:
            return
        LIVING.remove(self)
        there = {line.split()[0] for line in run("ip", "netns", "list").splitlines() if line}
        for name in sorted(there):
            if name.startswith(f"{self.name}-"):
                try:
                    run("ip", "netns", "del", name)
                except OSError as problem:
                    print(problem, file=sys.stderr)
