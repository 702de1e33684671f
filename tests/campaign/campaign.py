#!/usr/bin/python3
"""A campaign against real processes: the nodes of a cluster are killed, stopped, cut off, filled up and restarted, one fault after the other,
while workers make calls of all kinds; then it is checked that each call did what was promised (history.py, owners.py).

    campaign.py [--minutes N | --short] [--seed N] [--fault NAME ...]

It goes in rounds of some minutes, each with a cluster of its own. The first round that fails ends it with status 1: the seed and the faults are
printed, and the round's folder is kept and named: logs, disks, histories. The folder of the programs is E2E_BIN (harness.py).
"""
import argparse
import random
import subprocess
import sys
import tempfile
import time
import unittest

import cluster
import faults
import harness
import history
import owners

KEPT = harness.ROOT / "build"
ROUND_S = (60, 120, 240)
ROUND_S_MIN = 15
WORKERS = 4
SETTLE_S = 3  # between two faults, at most


class Campaign(cluster.Cluster):
    """One round."""

    seconds = ROUND_S_MIN

    def setUp(self):
        self.is_well = False
        super().setUp()

    def tearDown(self):
        if not self.is_well:
            self.keep()

    def keep(self):
        """The folder goes with the test; what was in it stays under another name."""
        for server in self.superpeers + self.peers:
            if server.node and server.is_up():
                server.kill()
        KEPT.mkdir(exist_ok=True)
        place = tempfile.mkdtemp(prefix=f"campaign-{self.settings.seed}.", dir=KEPT)
        self.say(f"seed {self.settings.seed}; the faults were: {'; '.join(self.done) or 'none'}")
        self.say(f"logs, disks and histories are in {place}")
        # cp leaves out what a disk's file has no bytes for. The small disk's own folder is empty but for its peer.
        subprocess.run(["cp", "-a", f"{self.folder}/.", place], check=False)
        if self.small:
            subprocess.run(["cp", "-a", f"{self.small_disk}/.", f"{place}/{self.small}.data"], check=False)

    def next_fault(self):
        if self.settings.short:
            return faults.SHORT[len(self.done)] if len(self.done) < len(faults.SHORT) else None
        there = faults.possible(self)
        if self.settings.faults:
            there = {fault: weight for fault, weight in there.items() if fault.__name__ in self.settings.faults}
        return self.luck.choices(list(there), list(there.values()))[0]

    def runTest(self):
        self.say(f"seed {self.settings.seed}: {len(self.superpeers)} superpeers, {len(self.peers)} peers, {self.seconds:.0f} s"
                 f"{'; no partitions: ' + self.why_no_network if self.why_no_network else ''}"
                 f"{'' if self.small else '; no full disks: no file system may be mounted here'}")
        self.start()
        self.wait_well()
        for _ in range(WORKERS):
            self.worker_start()
        deadline = time.monotonic() + self.seconds
        while (self.settings.short or time.monotonic() < deadline) and (fault := self.next_fault()):
            time.sleep(self.luck.uniform(0.5, SETTLE_S))
            self.done.append(f"{fault.__name__} at {time.monotonic() - self.began:.1f}")
            fault(self)
            over = time.monotonic()
            self.wait_well()
            self.say(f"    well {time.monotonic() - over:.1f} s after it was over")
        self.finish()
        self.is_well = True

    def finish(self):
        """All chunks are read once more, and everything is checked."""
        self.workers_end(cluster.PHASE_END)
        self.table.phase(cluster.PHASE_CHECK)
        self.worker_start()
        self.workers_end(cluster.PHASE_CHECK)
        for server in self.superpeers + self.peers:
            self.assertNotRegex(server.node.log(), harness.CRASH)
        calls = self.calls()
        last = [call for call in calls if call.worker == len(self.histories)]
        history.check(calls, self.outages)
        history.check_enough(calls)
        history.check_last(last)
        self.owners_check(last)
        failed = history.failures(calls)
        longest = max(calls, key=lambda call: call.end - call.begin if call.end != history.NEVER else 0)
        self.say(f"{len(calls)} calls are well; failed: {dict(failed) or 'none'}; the longest took {(longest.end - longest.begin) / 1e9:.1f} s")
        if longest.end - longest.begin > self.settings.call_s * 1e9:
            self.fail(f"a call took too long: {longest}")

    def owners_check(self, reads):
        """Each chunk has one owner. reads: one of each chunk, of a cluster in which nothing has changed since."""
        nids = [node["nid"] for node in self.must_ask("status")["nodes"] if node["state"] == "up" and "chunks" in node]
        stores = {nid: owners.ranges_of(self.must_ask("chunk", "list", nid)) for nid in nids}
        creators = {first >> 48 for ranges in stores.values() for first, _, _ in ranges}
        owners.check(stores, {nid: owners.ranges_of(self.must_ask("lookup", "tree", nid)) for nid in creators}, reads)


def words_of(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--short", action="store_true", help="one round with few faults, as ./test does it")
    parser.add_argument("--seed", type=int, default=None, help="of what is drawn; the next round has the next one")
    parser.add_argument("--fault", dest="faults", action="append", choices=[fault.__name__ for fault in faults.FAULTS],
                        help="only this one, or these")
    parser.add_argument("--superpeers", type=int, default=0, help="1 or 3; drawn")
    parser.add_argument("--peers", type=int, default=0, help="4 or more; drawn")
    parser.add_argument("--failure-s", type=int, default=2, help="the option failure_ns of the nodes")
    parser.add_argument("--call-s", type=int, default=90, help="within which each call ends")
    return parser.parse_args(words)


def main():
    settings = words_of(sys.argv[1:])
    if settings.seed is None:
        settings.seed = random.SystemRandom().randrange(1, 1 << 30)
    cluster.Cluster.settings = settings
    deadline = time.monotonic() + settings.minutes * 60
    ran = 0
    while ran == 0 or (time.monotonic() < deadline and not settings.short):
        length = random.Random(settings.seed).choice(ROUND_S)
        Campaign.seconds = max(ROUND_S_MIN, min(length, deadline - time.monotonic()))
        if not unittest.TextTestRunner(verbosity=0).run(Campaign()).wasSuccessful():
            print(f"round {ran + 1} failed: --seed {settings.seed}")
            return 1
        ran += 1
        settings.seed += 1
    print(f"{ran} round{'s are' if ran > 1 else ' is'} well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
