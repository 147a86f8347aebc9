"""``tellapart ARGUMENTS`` as one rank, which names a silent one after three seconds: under torchrun."""

from __future__ import annotations

from tellapart.cli import main
from tellapart.models import rank_watch

rank_watch.BEAT, rank_watch.SILENT = 0.3, 3.0
main()
