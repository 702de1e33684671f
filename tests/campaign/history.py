"""Says whether what the workers of a campaign (worker.c) wrote down is what the store promises.

A call begins and ends; what it does is done at one moment in between. So a read sees what some change left that was begun before the read
ended, and nothing older than what was acknowledged, or seen, before the read began. A call that failed, or has no end, is done at some
moment from its beginning on, or never. What a power failure may undo, the class of a chunk says (table.h).

Registers have one writer, so their changes have an order, and each read is looked up in it. A chunk ID may be given out again once its
chunk was removed: so the order is that of (incarnation of the ID, change). Words are replaced where they have what was expected, so what
was expected gives the order. Of a counter each addition says what was there before, which no other addition may say.
"""
import bisect
import collections

NEVER = float("inf")
LENGTH_SLACK = 16  # a value may end with zeros
WRONG = ("SHOAL_ENOCHUNK", "SHOAL_ESIZE", "SHOAL_EDIFFERS")  # of a chunk that is there, and is what it is expected to be


class Violation(AssertionError):
    """The history is not one of a store that keeps its promises."""


class Call:
    """What a worker did, from its lines B and E. end is NEVER, and error None, where there is no E."""

    __slots__ = ("worker", "number", "begin", "end", "op", "level", "kind", "use", "era", "cid", "key", "version", "size", "old",
                 "error", "got_key", "got", "got_size", "length")

    def __init__(self, worker, words):
        self.worker, self.begin, self.number = worker, int(words[1]), int(words[2])
        self.op, self.level, self.kind, self.use = words[3:7]
        self.era, self.cid, self.key = int(words[7]), int(words[8], 16), int(words[9], 16)
        self.version, self.size, self.old = map(int, words[10:13])
        self.end, self.error = NEVER, None
        self.got_key = self.got = self.got_size = self.length = None

    def ended(self, words):
        self.end, self.error = int(words[1]), words[3]
        if self.op == "C" and self.is_done():
            self.cid = int(words[4], 16)
        self.got_key = int(words[5], 16)
        self.got, self.got_size, self.length = map(int, words[6:9])

    def is_done(self):
        return self.error == "SHOAL_OK"

    def __str__(self):
        end = "never" if self.end == NEVER else f"{self.end / 1e9:.6f}"
        got = f" -> {self.error} {self.got_key:x}.{self.got} {self.got_size} bytes ({self.length})" if self.error else ""
        return (f"{self.begin / 1e9:.6f} to {end} worker {self.worker} call {self.number}: {self.op} {self.level} {self.kind}{self.use} "
                f"era {self.era} of {self.cid >> 48}:{self.cid & (1 << 48) - 1} {self.key:x}.{self.version} {self.size} bytes, for {self.old}{got}")


def read_calls(worker, lines):
    """The calls of a worker's history. The last line of one that was killed may be cut off."""
    calls = []
    for line in lines:
        words = line.split()
        if not line.endswith("\n"):
            break
        if words[0] == "B":
            calls.append(Call(worker, words))
        else:
            if not calls or calls[-1].number != int(words[2]):
                raise ValueError(f"worker {worker}: {line}")
            calls[-1].ended(words)
    return calls


class Outage:
    """All nodes have lost their power: from a moment before the first one did until one after the last one did."""

    def __init__(self, begin, end):
        self.begin, self.end = begin, end


def fail(problem, calls, bad=None):
    """Raises a Violation that has the calls around the bad one, in order."""
    calls = sorted(calls, key=lambda call: call.begin)
    at = calls.index(bad) if bad in calls else len(calls)
    shown = calls[max(0, at - 40):at + 10]
    raise Violation(f"{problem}\n" + "\n".join(f"{'>>' if call is bad else '  '} {call}" for call in shown))


# --- Registers -----------------------------------------------------------------------------------------------------

class State:
    """What a change left behind. place: (incarnation, change); begin: when it may be there first; explains: whether a read may see it."""

    __slots__ = ("place", "begin", "call", "explains")

    def __init__(self, place, begin, call, explains):
        self.place, self.begin, self.call, self.explains = place, begin, call, explains

    def is_safe(self):
        """Whether no power failure undoes it. What is soft is followed by a state that explains anything."""
        return self.call is None or self.call.kind != "m" or self.call.level == "d"


def is_absent(read):
    return read.error == "SHOAL_ENOCHUNK"


def shows(key, version, size, length):
    """What sees this version, cut off at length."""
    def explains(read):
        return (not is_absent(read) and read.got_size == size and read.got == version and read.got_key == (key if version else 0)
                and length - LENGTH_SLACK <= read.length <= length)
    return explains


def shows_shared(key):
    """What sees a counter or word, the values of which are looked at elsewhere."""
    return lambda read: not is_absent(read) and (read.got_size == 8 or read.got == 0 or read.got_key == key)


def shows_lost(key):
    """What sees anything that a power failure may have left."""
    return lambda read: is_absent(read) or read.got_size == 8 or read.got == 0 or read.got_key == key


def soft_end(create, outages):
    """When a chunk may have become anything."""
    return outages[create.era].begin if create.kind == "s" and create.era < len(outages) else NEVER


def states_of(place, changes, outages):
    """The states that the changes of one chunk leave, in order."""
    create = changes[0]
    states, size, length, version = [], create.size, 0, 0
    for number, call in enumerate(changes):
        if call.op == "R":
            size, length = call.size, min(length, call.size)
        elif call.op in "PI":
            size, length, version = call.size, call.size, call.version
        explains = is_absent if call.op == "X" else shows(create.key, version, size, length)
        states.append(State((place, number), call.begin, call, shows_shared(create.key) if create.use != "r" else explains))
    if soft_end(create, outages) != NEVER:
        states.append(State((place, NEVER), soft_end(create, outages), None, shows_lost(create.key)))
    return states


def check_changes(changes, outages):
    """Nobody else changes a register, so its worker finds it as it was."""
    for call in changes:
        if call.error in WRONG and call.end < soft_end(changes[0], outages):
            fail(f"a change ends with {call.error}", changes, call)


def check_register(incarnations, reads, outages):
    """All that was done with the chunks that had one ID, one after the other."""
    incarnations.sort(key=lambda changes: changes[0].end)
    everything = [call for changes in incarnations for call in changes] + reads
    states = [State((-1, 0), 0, None, is_absent)]
    for place, changes in enumerate(incarnations):
        before = incarnations[place - 1] if place else None
        if before and (before[-1].op != "X" or before[-1].begin > changes[0].end) and soft_end(before[0], outages) > changes[0].end:
            fail("an ID was given out again, while its chunk was there", everything, changes[0])
        if changes[0].use == "r":
            check_changes(changes, outages)
        states += states_of(place, changes, outages)
    sweep(states, reads, outages, everything)


def sweep(states, reads, outages, everything):
    """Looks each read up, in the order of time. firm, soft: the last state that was acknowledged or seen, of those that no power failure
    undoes, and of the others."""
    ACKED, BEGINS, ENDS, FAILS = range(4)
    events = [(state.call.end, ACKED, number) for number, state in enumerate(states) if state.call and state.call.is_done()]
    events += [(read.begin, BEGINS, read) for read in reads] + [(read.end, ENDS, read) for read in reads]
    events += [(outage.begin, FAILS, outage) for outage in outages]
    firm = soft = 0
    floors = {}  # of reads that have begun
    doubt_until = -1
    for when, what, about in sorted(events, key=lambda event: event[:2]):
        if what == BEGINS:
            floors[about] = firm, max(firm, soft)
        elif what == FAILS:
            soft, doubt_until = 0, about.end
            floors = {read: (least, least) for read, (least, _) in floors.items()}
        else:
            number = about if what == ACKED else explain(states, about, floors.pop(about)[1], everything)
            if states[number].is_safe():
                firm = max(firm, number)
            elif when > doubt_until:
                soft = max(soft, number)


def explain(states, read, floor, everything):
    """The first state, from the floor on, that the read may have seen."""
    for number in range(floor, len(states)):
        if states[number].begin < read.end and states[number].explains(read):
            return number
    older = [states[number].place for number in range(floor) if states[number].explains(read)]
    return fail(f"a read sees {f'the state {older[-1]}, which was replaced' if older else 'a state that never was'}: it may see"
                f" {states[floor].place}, or later ones", everything, read)


# --- Counters ------------------------------------------------------------------------------------------------------

def check_counter(calls, outages):
    until = soft_end(calls[0], outages)
    adds = [call for call in calls if call.op == "A" and call.begin < until]
    begun = sorted(call.begin for call in adds)
    done = sorted(call.end for call in adds if call.is_done() and call.end < until)
    told = {}
    seen = []  # (end, value at least), in order of ends
    for call in sorted(calls, key=lambda call: call.end):
        if call.end >= until or call.op not in "AG":
            continue
        if call.error in WRONG:
            fail(f"a counter is not there: {call.error}", calls, call)
        if not call.is_done():
            continue
        value = call.got
        if call.op == "A" and told.setdefault(value, call) is not call:
            fail(f"two additions find {value}: {told[value]}", calls, call)
        least = bisect.bisect_left(done, call.begin)
        most = bisect.bisect_left(begun, call.end) - (call.op == "A")
        before = bisect.bisect_left(seen, (call.begin,))
        least = max(least, seen[before - 1][1] if before else 0)
        if not least <= value <= most:
            fail(f"a counter is {value}, where {least} additions are made and {most} begun", calls, call)
        reached = value + (call.op == "A")
        seen.append((call.end, max(reached, seen[-1][1] if seen else 0)))


# --- Words ---------------------------------------------------------------------------------------------------------

def check_word(calls, outages):
    until = soft_end(calls[0], outages)
    puts = {call.version: call for call in calls if call.op == "I" and call.begin < until}
    reads = [call for call in calls if call.op == "G" and call.end < until and call.is_done()]
    for call in calls:
        if call.end < until and call.error in WRONG[:2]:
            fail(f"a word is not there: {call.error}", calls, call)
    # A value was put if a worker was told so, or if somebody has seen it.
    seen = {read.got for read in reads} - {0}
    done = {version for version, call in puts.items() if call.is_done() and call.end < until}
    for value in seen - set(puts):
        fail(f"a word has {value}, which nobody put", calls)
    for value in seen - done:
        if puts[value].error == "SHOAL_EDIFFERS":
            fail(f"a word has {value}, of which its worker was told that it was not put", calls, puts[value])
    after = {}
    for value in sorted(seen | done):
        call = puts[value]
        if after.setdefault(call.old, value) != value:
            fail(f"{call.old} was replaced twice: by {after[call.old]} and {value}", calls, call)
    order, value = {0: 0}, 0
    chain = [None]
    while value in after:
        value = after[value]
        order[value] = len(order)
        chain.append(puts[value])
    for value in (seen | done) - set(order):
        fail(f"{value} was put for {puts[value].old}, which the word never had", calls, puts[value])
    for before, put in zip(chain[1:], chain[2:]):
        if put.end < before.begin:
            fail(f"{put.version} was put before what it replaced", calls, put)
    check_order(chain, order, reads, calls)


def check_order(chain, order, reads, calls):
    """Values follow each other in this order, and reads see them so."""
    ends = sorted([(put.end, number) for number, put in enumerate(chain) if put and put.is_done()] +
                  [(read.end, order[read.got]) for read in reads])
    highest, most = [], 0
    for _, number in ends:
        most = max(most, number)
        highest.append(most)
    for read in reads:
        number, before = order[read.got], bisect.bisect_left(ends, (read.begin,))
        if before and number < highest[before - 1]:
            fail(f"a read sees the value {number} of a word, after {highest[before - 1]}", calls, read)
        if chain[number] and chain[number].begin > read.end:
            fail("a read sees a value of a word before it was put", calls, read)


# --- All of it -----------------------------------------------------------------------------------------------------

def check(calls, outages):
    """Raises Violation. outages: in order; the one with index i ended era i."""
    changes, reads = collections.defaultdict(list), collections.defaultdict(list)  # by key, by ID
    shared = collections.defaultdict(list)
    for call in sorted(calls, key=lambda call: (call.begin, call.number)):
        if call.error == "TORN":
            raise Violation(f"a read sees bytes of no value: {call}")
        if call.use != "r" and call.cid:
            shared[call.key].append(call)
        if call.cid and (call.op == "C" or (call.use == "r" and call.op != "G")):
            changes[call.key].append(call)
        elif call.use == "r" and call.op == "G" and call.error in ("SHOAL_OK", "SHOAL_ENOCHUNK"):
            reads[call.cid].append(call)
    incarnations = collections.defaultdict(list)  # by ID
    for some in changes.values():
        if some[0].op != "C":
            fail("a change of a chunk that nobody made", some)
        incarnations[some[0].cid].append(some)
    for cid, some in incarnations.items():
        check_register(some, reads[cid], outages)
    for some in shared.values():
        (check_counter if some[0].use == "c" else check_word)(some, outages)


def check_last(calls):
    """What was read of a cluster that is well, and which nothing happens to: each chunk is there, or is not; an error says nothing of it."""
    for call in calls:
        if call.op == "G" and call.error not in ("SHOAL_OK", "SHOAL_ENOCHUNK"):
            fail(f"the last read of a chunk ends with {call.error}", [call], call)


def check_enough(calls, least=20):
    """Of each kind of call that was begun so often some were done: else there is nothing to check."""
    begun = collections.Counter(call.op for call in calls)
    done = collections.Counter(call.op for call in calls if call.is_done())
    for op, count in begun.items():
        if count >= least and not done[op]:
            raise Violation(f"none of {count} calls of kind {op} was done")
    if not done:
        raise Violation("no call was done")


def failures(calls):
    """How many calls ended with which error, those left out that say something about a chunk."""
    return collections.Counter(call.error for call in calls if call.error and call.error not in (
        "SHOAL_OK", "SHOAL_ENOCHUNK", "SHOAL_EDIFFERS"))
