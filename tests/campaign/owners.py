"""Says whether each chunk of a cluster that is well has one owner: what the peers say that they have, what the superpeers have noted, and what
was read agree.
"""
import bisect


class Disagreement(AssertionError):
    """Two nodes say different things about a chunk."""


def number_of(cid):
    """The 64 bits of a chunk ID that is written as NODE:NUMBER."""
    node, local = cid.split(":")
    return int(node) << 48 | int(local)


def name_of(number):
    return f"{number >> 48}:{number & (1 << 48) - 1}"


def ranges_of(answer):
    """The ranges of `shoal chunk list NID --json` or `shoal lookup tree NID --json`, as (first, last, entry), sorted."""
    return sorted((number_of(entry["first"]), number_of(entry["last"]), entry.get("owner")) for entry in answer["ranges"])


def check_stores(stores):
    """No chunk is in two stores. stores: of each peer's node ID its ranges. Returns (first, last, node ID) of all, sorted."""
    held = sorted((first, last, nid) for nid, ranges in stores.items() for first, last, _ in ranges)
    for (first, last, nid), (next_first, _, next_nid) in zip(held, held[1:]):
        if next_first <= last:
            raise Disagreement(f"chunk {name_of(next_first)} is at node {nid} and at node {next_nid} ({name_of(first)} to {name_of(last)})")
    return held


def owner_in(ranges, cid):
    """Whose range has this chunk; None: nobody's."""
    at = bisect.bisect_right(ranges, cid, key=lambda entry: entry[0]) - 1
    return ranges[at][2] if at >= 0 and cid <= ranges[at][1] else None


def check_notes(held, trees):
    """What is in a store is noted as that node's. trees: of each creator's node ID what the superpeers have noted."""
    for first, last, nid in held:
        noted = trees.get(first >> 48, [])
        at = max(0, bisect.bisect_right(noted, first, key=lambda entry: entry[0]) - 1)
        for begin, end, owner in noted[at:]:
            if begin > last:
                break
            if end >= first and owner != nid:
                raise Disagreement(f"node {nid} has {name_of(first)} to {name_of(last)}; noted is {name_of(begin)} to {name_of(end)}"
                                   f" as node {owner}'s")
        if owner_in(noted, first) is None:
            raise Disagreement(f"node {nid} has {name_of(first)}, of which nothing is noted")


def check_reads(held, reads):
    """A chunk is in a store if, and only if, it could be read: reads are calls (history.py), one of each chunk."""
    for read in reads:
        has = owner_in(held, read.cid)
        if read.error == "SHOAL_OK" and has is None:
            raise Disagreement(f"chunk {name_of(read.cid)} could be read, and is in no store")
        if read.error == "SHOAL_ENOCHUNK" and has is not None:
            raise Disagreement(f"chunk {name_of(read.cid)} is not there, and node {has} has it")


def check(stores, trees, reads):
    """Raises Disagreement. No call may be under way, and the cluster must be well."""
    held = check_stores(stores)
    check_notes(held, trees)
    check_reads(held, reads)
