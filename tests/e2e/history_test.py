"""The checkers of campaigns (tests/campaign) find what they are there for: histories that a store may have are accepted, and histories that
break one rule each are not."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "campaign"))

import history  # noqa: E402
import owners  # noqa: E402

CID = (64 << 48) + 7
KEY = (1 << 32) + 1


class Story:
    """A history as the workers write it down. Each call takes from `at` to `until`; it is acknowledged, unless something else is said. One
    time unit is a nanosecond."""

    def __init__(self):
        self.lines, self.number, self.outages = {}, 0, []

    def call(self, at, until, op, level="d", kind="f", use="r", era=0, cid=CID, key=KEY, version=0, size=100, old=0, error="SHOAL_OK",
             got=(0, 0, 0, 0), worker=1):
        """got: key, version, size, length as they were read; until None: it has no end."""
        self.number += 1
        known = 0 if op == "C" else cid
        lines = self.lines.setdefault(worker, [])
        lines.append(f"B {at} {self.number} {op} {level} {kind} {use} {era} {known:x} {key:x} {version} {size} {old}\n")
        if until is not None:
            lines.append(f"E {until} {self.number} {error} {cid:x} {got[0]:x} {got[1]} {got[2]} {got[3]}\n")
        return self

    def create(self, at, **more):
        return self.call(at, at + 5, "C", **more)

    def put(self, at, version, until=5, size=100, **more):
        return self.call(at, None if until is None else at + until, "P", version=version, size=size, **more)

    def remove(self, at, until=5, **more):
        return self.call(at, None if until is None else at + until, "X", version=9, **more)

    def read(self, at, version, size=100, length=None, key=KEY, until=5, **more):
        length = (size if version else 0) if length is None else length
        return self.call(at, at + until, "G", got=(key if version else 0, version, size, length), worker=2, key=key, **more)

    def absent(self, at, until=5, **more):
        return self.call(at, at + until, "G", error="SHOAL_ENOCHUNK", worker=2, **more)

    def add(self, at, before, until=5, **more):
        return self.call(at, None if until is None else at + until, "A", use="c", size=8, got=(0, before, 8, 0), **more)

    def counted(self, at, value, **more):
        return self.call(at, at + 5, "G", use="c", size=8, got=(0, value, 8, 0), worker=2, **more)

    def replace(self, at, version, old, until=5, **more):
        return self.call(at, None if until is None else at + until, "I", use="w", size=64, version=version, old=old, **more)

    def word(self, at, version, **more):
        return self.call(at, at + 5, "G", use="w", size=64, got=(KEY if version else 0, version, 64, 64 if version else 0), worker=2, **more)

    def outage(self, at, until):
        self.outages.append(history.Outage(at, until))
        return self

    def calls(self):
        return [call for worker, lines in self.lines.items() for call in history.read_calls(worker, lines)]


class Histories(unittest.TestCase):
    def is_well(self, story):
        history.check(story.calls(), story.outages)

    def is_found(self, says, story):
        with self.assertRaisesRegex(history.Violation, says):
            history.check(story.calls(), story.outages)

    # --- Registers ---------------------------------------------------------------------------------

    def test_what_is_well(self):
        self.is_well(Story().create(0).read(5, 0).put(10, 1).read(20, 1).put(30, 2).read(31, 1).read(32, 2).remove(50).absent(60))

    def test_a_write_is_lost(self):
        self.is_found("which was replaced", Story().create(0).put(10, 1).put(20, 2).read(30, 1))
        self.is_found("which was replaced", Story().create(0).put(10, 1).read(20, 0))

    def test_a_chunk_is_lost(self):
        self.is_found("which was replaced", Story().create(0).put(10, 1).absent(20))
        self.is_found("which was replaced", Story().create(0).absent(20))

    def test_a_removal_is_undone(self):
        self.is_found("which was replaced", Story().create(0).put(10, 1).remove(20).read(30, 1))

    def test_reads_go_back(self):
        """What was seen is there from then on, also where nobody has acknowledged it."""
        self.is_found("which was replaced", Story().create(0).put(10, 1).put(20, 2, until=None).read(30, 2).read(40, 1))
        self.is_well(Story().create(0).put(10, 1).put(20, 2, until=None).read(30, 1).read(40, 2).read(50, 2))
        self.is_well(Story().create(0).put(10, 1).put(20, 2, until=None).read(30, 2, until=9).read(31, 1, until=9))

    def test_a_call_that_failed(self):
        """Nobody knows whether it was done."""
        for version in (1, 2):
            self.is_well(Story().create(0).put(10, 1).put(20, 2, error="SHOAL_ETIMEOUT").read(30, version))
        self.is_found("which was replaced", Story().create(0).put(10, 1).put(20, 2, error="SHOAL_ETIMEOUT").read(30, 0))

    def test_a_call_fails_that_must_not(self):
        """The worker of a register finds it as it left it."""
        for error in ("SHOAL_ENOCHUNK", "SHOAL_ESIZE"):
            self.is_found(f"a change ends with {error}", Story().create(0).put(10, 1, error=error))
        self.is_found("a change ends with SHOAL_EDIFFERS",
                      Story().create(0).put(10, 1).call(20, 25, "I", version=2, error="SHOAL_EDIFFERS"))

    def test_a_value_comes_early(self):
        self.is_found("a state that never was", Story().create(0).read(10, 1).put(20, 1))

    def test_wrong_bytes(self):
        self.is_found("bytes of no value", Story().create(0).put(10, 1).read(20, 1, error="TORN"))
        self.is_found("a state that never was", Story().create(0).put(10, 1).read(20, 1, key=KEY + 1))
        self.is_found("a state that never was", Story().create(0).put(10, 1).read(20, 1, length=50))

    def test_sizes(self):
        shrunk = Story().create(0).put(10, 1, size=200).call(20, 25, "R", version=2, size=120).call(30, 35, "R", version=3, size=300)
        self.is_well(shrunk.read(40, 1, size=300, length=120))
        self.is_found("a state that never was", shrunk.read(50, 1, size=300, length=200))
        self.is_found("which was replaced", Story().create(0).put(10, 1, size=200).call(20, 25, "R", version=2, size=120).read(30, 1, size=200))

    def test_an_id_twice(self):
        other = {"key": KEY + 1}
        self.is_well(Story().create(0).remove(10).create(20, **other).put(30, 1, **other).read(40, 1, **other))
        self.is_found("given out again", Story().create(0).put(10, 1).create(20, **other))
        self.is_found("which was replaced", Story().create(0).put(10, 1).remove(20).create(30, **other).put(40, 1, **other).read(50, 1))

    def test_outages(self):
        """Of a power failure on, what was only replicated may be gone, and what was durable may not."""
        mixed = {"kind": "m"}
        written = Story().create(0, **mixed).put(10, 1, **mixed).put(20, 2, level="r", **mixed).read(30, 2, **mixed).outage(40, 50)
        self.is_well(written.read(60, 1, **mixed).read(70, 1, **mixed))
        self.is_found("which was replaced", written.read(80, 0, **mixed))
        self.is_found("which was replaced", Story().create(0, **mixed).put(10, 1, level="r", **mixed).read(20, 0, **mixed).outage(40, 50))
        self.is_found("which was replaced",
                      Story().create(0).put(10, 1).put(20, 2).outage(40, 50).read(60, 1))
        soft = {"level": "r", "kind": "s"}
        self.is_well(Story().create(0, **soft).put(10, 1, **soft).outage(20, 30).absent(40))
        self.is_found("which was replaced", Story().create(0, **soft).put(10, 1, **soft).absent(20).outage(30, 40))

    # --- Counters ----------------------------------------------------------------------------------

    def counter(self):
        return Story().create(0, use="c", size=8)

    def test_counters_are_well(self):
        self.is_well(self.counter().add(10, 0).add(20, 1).counted(30, 2).add(40, 2, until=None).counted(50, 2).counted(60, 3))

    def test_an_addition_is_lost(self):
        self.is_found("where 2 additions are made", self.counter().add(10, 0).add(20, 1).counted(30, 1))
        self.is_found("two additions find 0", self.counter().add(10, 0, until=20).add(11, 0, until=20))

    def test_an_addition_counts_twice(self):
        self.is_found("1 begun", self.counter().add(10, 0).counted(30, 2))
        self.is_found("2 begun", self.counter().add(10, 0).add(20, 0, until=None).counted(30, 3))

    def test_a_counter_goes_back(self):
        self.is_found("a counter is 0", self.counter().add(10, 0, until=None).counted(20, 1).counted(30, 0))

    def test_a_counter_is_gone(self):
        self.is_found("a counter is not there", self.counter().add(10, 0).absent(20, use="c"))
        self.is_found("which was replaced|not there", self.counter().add(10, 0, error="SHOAL_ENOCHUNK"))

    # --- Words -------------------------------------------------------------------------------------

    def words(self):
        return Story().create(0, use="w", size=64)

    def test_words_are_well(self):
        self.is_well(self.words().word(5, 0).replace(10, 1, 0).replace(20, 2, 1).word(30, 2).replace(40, 3, 2, until=None).word(50, 2).word(60, 3)
                     .replace(70, 4, 2, error="SHOAL_EDIFFERS"))

    def test_a_word_is_replaced_twice(self):
        self.is_found("was replaced twice", self.words().replace(10, 1, 0).replace(20, 2, 0))
        self.is_found("was replaced twice", self.words().replace(10, 1, 0).replace(20, 2, 0, until=None).word(30, 2))

    def test_a_word_goes_back(self):
        self.is_found("sees the value 1 of a word, after 2", self.words().replace(10, 1, 0).replace(20, 2, 1).word(30, 1))

    def test_a_word_that_was_refused(self):
        self.is_found("was told that it was not put",
                      self.words().replace(10, 1, 0).replace(20, 2, 1, error="SHOAL_EDIFFERS").word(30, 2))

    def test_a_word_of_nobody(self):
        self.is_found("which nobody put", self.words().word(10, 5))
        self.is_found("which the word never had", self.words().replace(10, 1, 0).replace(20, 3, 2))

    def test_a_word_before_its_put(self):
        self.is_found("before it was put", self.words().word(5, 1).replace(11, 1, 0))
        self.is_found("put before what it replaced", self.words().replace(10, 2, 1).replace(20, 1, 0))

    # --- What is written down ----------------------------------------------------------------------

    def test_a_line_is_cut_off(self):
        lines = Story().create(0).put(10, 1).lines[1]
        self.assertEqual(len(history.read_calls(1, lines[:-1] + [lines[-1][:-1]])), 2)
        self.assertEqual(history.read_calls(1, lines[:-1])[1].end, history.NEVER)
        with self.assertRaises(ValueError):
            history.read_calls(1, lines[:2] + lines[3:])


class Ends(unittest.TestCase):
    """What is asked of a round as a whole."""

    def test_the_last_reads_end_well(self):
        history.check_last(Story().read(5, 1).absent(20).calls())
        for error in ("SHOAL_ELOST", "SHOAL_EFAILED", "SHOAL_ETIMEOUT"):
            with self.assertRaisesRegex(history.Violation, f"ends with {error}"):
                history.check_last(Story().read(5, 1).read(10, 1, error=error).calls())

    def test_some_calls_are_done(self):
        story = Story().create(0)
        for at in range(10, 40):
            story.put(at, 1, error="SHOAL_EFAILED")
        with self.assertRaisesRegex(history.Violation, "none of 30 calls of kind P"):
            history.check_enough(story.calls())
        history.check_enough(story.put(50, 2).calls())
        with self.assertRaisesRegex(history.Violation, "no call was done"):
            history.check_enough([])


class Owners(unittest.TestCase):
    """Node 64 has chunks 64:1 to 64:9, node 65 has 64:10 and 65:1."""

    def setUp(self):
        self.stores = {64: self.ranges(("64:1", "64:9", None)), 65: self.ranges(("64:10", "64:10", None), ("65:1", "65:1", None))}
        self.trees = {64: self.ranges(("64:0", "64:9", 64), ("64:10", "64:20", 65), ("64:21", "64:99", 64)),
                      65: self.ranges(("65:0", "65:99", 65))}

    @staticmethod
    def ranges(*some):
        return owners.ranges_of({"ranges": [{"first": first, "last": last, "owner": owner} for first, last, owner in some]})

    def is_found(self, says, reads=()):
        with self.assertRaisesRegex(owners.Disagreement, says):
            owners.check(self.stores, self.trees, reads)

    def test_all_agree(self):
        reads = Story().read(0, 1, cid=(64 << 48) + 10).absent(10, cid=(64 << 48) + 11).calls()
        owners.check(self.stores, self.trees, reads)

    def test_two_have_it(self):
        self.stores[65] += self.ranges(("64:9", "64:9", None))
        self.is_found("chunk 64:9 is at node 64 and at node 65")

    def test_another_is_noted(self):
        self.trees[64][1] = (*self.trees[64][1][:2], 64)
        self.is_found("node 65 has 64:10 to 64:10; noted is 64:10 to 64:20 as node 64's")
        self.trees[64][0] = (self.trees[64][0][0] + 1, *self.trees[64][0][1:2], 65)
        self.is_found("node 64 has 64:1 to 64:9; noted is 64:1 to 64:9 as node 65's")

    def test_nothing_is_noted(self):
        del self.trees[65]
        self.is_found("node 65 has 65:1, of which nothing is noted")

    def test_reads(self):
        self.is_found("could be read, and is in no store", Story().read(0, 1, cid=(64 << 48) + 11).calls())
        self.is_found("is not there, and node 64 has it", Story().absent(0, cid=(64 << 48) + 9).calls())


if __name__ == "__main__":
    unittest.main()
