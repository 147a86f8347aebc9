"""Divides rows among ranks."""

from __future__ import annotations


def share_of(total: int, rank: int, world_size: int) -> slice:
    """Returns this rank's share of ``total`` rows. Shares are consecutive, and their sizes differ by at most
    one row.
    """
    each, more = divmod(total, world_size)
    place = rank if world_size > 1 else 0  # a rank that has left the process group keeps its number
    begin = place * each + min(place, more)
    return slice(begin, begin + each + (place < more))
