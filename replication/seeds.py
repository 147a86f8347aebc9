"""Assigns seeds to purposes: choosing settings, giving verdicts, and checks by other people.

Settings are chosen on seeds below 10. Each verdict has reserved seeds that nothing else may use. Seeds from 100 on
are reserved for other people to check the findings. The project never runs them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tellapart.errors import UsageError, nearest

NAMED = {"quick": (0,), "dev": tuple(range(6))}
VERDICTS = {  # by the command that gives the verdict
    "claims": tuple(range(20, 25)),
    "tradeoff": tuple(range(30, 35)),
    "photos": (40, 41, 42),
    "front": tuple(range(50, 55)),
    "objectives": tuple(range(60, 65)),
    "photo-objectives": (70, 71, 72),
}
# The words that a user types for a verdict
TYPED = {name: name for name in VERDICTS} | {"photos": "photos --findings", "photo-objectives": "objectives --photos"}


@dataclass(frozen=True)
class Seeds:
    """Seeds and their purpose: ``kind`` is "quick", "dev", "verdict", or "seeds" for an explicit list."""

    kind: str
    numbers: tuple[int, ...]

    @property
    def option(self) -> str:
        """Returns the value for ``--seeds``."""
        return ",".join(map(str, self.numbers)) if self.kind == "seeds" else self.kind

    @property
    def label(self) -> str:
        """Returns a label for file names: "dev", or "seeds-100-101"."""
        return "-".join([self.kind, *map(str, self.numbers)]) if self.kind == "seeds" else self.kind


def parse_seeds(text: str, command: str) -> Seeds:
    """Parses seeds: quick, dev, verdict, or numbers ("100,101"). command: "claims", "tradeoff", "tables".

    Raises `UsageError` for anything else, and for numbers reserved for a verdict. Commands without a verdict do not
    accept "verdict".
    """
    known = {**NAMED, **({"verdict": VERDICTS[command]} if command in VERDICTS else {})}
    if text in known:
        return Seeds(text, known[text])
    try:
        numbers = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        names = ", ".join(known)
        raise UsageError(f"--seeds is '{text}'{nearest(text, known)}; expected {names}, or numbers: 0,1") from None
    if min(numbers) < 0:
        raise UsageError(f"--seeds is '{text}'; expected numbers from 0")
    for name, reserved in VERDICTS.items():
        if found := sorted(set(numbers) & set(reserved)):
            raise UsageError(
                f"seed {found[0]} is reserved for the verdict of python -m replication {TYPED[name]} --seeds "
                "verdict; use other seeds, from 100 on to check the project's findings"
            )
    return Seeds("seeds", numbers)
