"""Bags of look-alikes, mined from any set of pictures, for benchmarks and training. Modules load on first use."""

from __future__ import annotations

from tellapart.utils.lazy_names import lazily

_WHERE = {"curate_bags": "mine", "mine_bags": "mine"}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE)
