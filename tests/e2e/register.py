"""Checks of what one value may be, for tests that write it and read it one call after the other.

A call that was acknowledged took effect before it returned, one that was refused never does, and
one of which nobody knows may take effect once, at any later time, or never. With no two calls at
once that is all that linearizability says, and these checkers know it exactly: whatever they let
through some order of effects explains, and whatever they refuse none does.
"""

ACKNOWLEDGED, UNCLEAR, REFUSED = "acknowledged", "unclear", "refused"


class Violation(AssertionError):
    """What was read can't be."""


class Register:
    """A value that is written; no value is written twice."""

    def __init__(self, value):
        self.value = value
        self.pending = set()  # may become the value at any time, once
        self.written = {value}

    def write(self, value, outcome):
        if value in self.written:
            raise ValueError(f"{value} is written again")
        self.written.add(value)
        if outcome == ACKNOWLEDGED:
            self.value = value
        elif outcome == UNCLEAR:
            self.pending.add(value)

    def read(self, value):
        """Raises Violation unless the value may be this one now; then it is this one."""
        if value in self.pending:
            self.pending.remove(value)
            self.value = value
        elif value != self.value:
            raise Violation(f"{value} is read, where it can only be {self.value}"
                            f" or one of {sorted(self.pending)}")


class Counter:
    """A number that ones are added to."""

    def __init__(self):
        self.least = self.most = 0

    def add(self, outcome, after=None):
        """after: what the call said that the number was when it had added."""
        self.least += outcome == ACKNOWLEDGED
        self.most += outcome != REFUSED
        if after is not None:
            self.read(after)

    def read(self, value):
        if not self.least <= value <= self.most:
            raise Violation(f"{value} is read, where it can only be {self.least} to {self.most}")
        self.least = value
