"""What a command says while it works: on stderr, so that stdout stays with results."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
