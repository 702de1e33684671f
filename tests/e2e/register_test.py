"""The checkers of register.py: what they must let through, and what they must find."""
import itertools
import unittest

from register import ACKNOWLEDGED, REFUSED, UNCLEAR, Counter, Register, Violation


def explained(history):
    """Whether some order of effects explains a history of ("w", value, outcome) and ("r", value):
    by trying for each unclear write all times at which it may take effect."""
    unclear = [at for at, event in enumerate(history) if event[-1] == UNCLEAR]
    for times in itertools.product(range(len(history) + 1), repeat=len(unclear)):
        if any(time < at for time, at in zip(times, unclear)):
            continue
        # Those with the same time take effect in any order.
        for order in itertools.permutations(zip(times, unclear)):
            value, good = 0, True
            for at, event in enumerate(history):
                for time, write in order:
                    if time == at and write < at:
                        value = history[write][1]
                if event[0] == "r":
                    good = good and event[1] == value
                elif event[2] == ACKNOWLEDGED:
                    value = event[1]
            if good:
                return True
    return False


def accepted(history):
    register = Register(0)
    try:
        for event in history:
            if event[0] == "w":
                register.write(event[1], event[2])
            else:
                register.read(event[1])
    except Violation:
        return False
    return True


class Registers(unittest.TestCase):
    def check(self, history, good):
        self.assertEqual(explained(history), good, history)
        self.assertEqual(accepted(history), good, history)

    def test_an_unclear_value_is_not_followed_by_an_older_one(self):
        self.check([("w", 1, ACKNOWLEDGED), ("w", 2, UNCLEAR), ("r", 2), ("r", 1)], False)

    def test_an_unclear_value_may_come_late(self):
        self.check([("w", 1, UNCLEAR), ("w", 2, ACKNOWLEDGED), ("r", 2), ("r", 1)], True)
        self.check([("w", 1, UNCLEAR), ("w", 2, ACKNOWLEDGED), ("r", 1), ("r", 2)], False)

    def test_an_unclear_value_comes_once(self):
        self.check([("w", 1, UNCLEAR), ("r", 1), ("w", 2, ACKNOWLEDGED), ("r", 1)], False)

    def test_a_refused_value_never_comes(self):
        self.check([("w", 1, REFUSED), ("r", 1)], False)
        self.check([("w", 1, REFUSED), ("r", 0)], True)

    def test_all_short_histories(self):
        """Each history of up to five events, beside the slow search."""
        checked = [0, 0]

        def grow(history, writes):
            good = accepted(history)
            self.assertEqual(good, explained(history), history)
            checked[good] += 1
            if len(history) == 5:
                return
            for value in range(writes + 1):
                grow([*history, ("r", value)], writes)
            if writes < 3:
                for outcome in (ACKNOWLEDGED, UNCLEAR, REFUSED):
                    grow([*history, ("w", writes + 1, outcome)], writes + 1)

        grow([], 0)
        self.assertGreater(min(checked), 100)

    def test_counters(self):
        counter = Counter()
        counter.add(ACKNOWLEDGED, 1)
        counter.add(UNCLEAR)
        counter.add(REFUSED)
        counter.read(1)
        counter.read(2)
        with self.assertRaises(Violation):
            counter.read(1)  # it does not go back
        with self.assertRaises(Violation):
            counter.read(3)


if __name__ == "__main__":
    unittest.main()
