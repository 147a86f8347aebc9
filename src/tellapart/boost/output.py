"""Writes the result atomically, together with ``RESULT.made.json``, which records how the result was made.

If the last stage has no good answer for any item, the captions are the texts of another stage (see `FALLBACK`). The key
``captions_of`` in ``RESULT.made.json`` names that stage.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from tellapart.boost.made_record import made_file
from tellapart.boost.records import keeping_answers, read_records, with_captions_of
from tellapart.utils.atomic_writes import temporary_beside, writable_file
from tellapart.utils.outputs import write_output

FALLBACK = ("holistic", "blend", "describe")  # stages to take captions from, starting with those that use references


@dataclass
class Output:
    """The result in ``path`` that is being written to ``file``. ``good``: the stages that have texts so far."""

    path: Path
    file: TextIO
    good: set[str] = field(default_factory=set)

    def write(self, value: Mapping[str, Any]) -> None:
        """Writes one line. Raises `TellapartError` if it cannot be written."""
        with keeping_answers(self.path):
            self.file.write(json.dumps(value, ensure_ascii=False) + "\n")
        self.good.update(value["stages"])


@contextlib.contextmanager
def open_output(path: Path, made: dict[str, Any]) -> Iterator[Output]:
    """Opens a result. Its lines go to a temporary file until the ``with`` block succeeds.

    made: records how the result is made. If it lists stages, the captions come from the last one.
    """
    with keeping_answers(path):
        real = writable_file(path)
        temporary = temporary_beside(real.with_name(f"{real.name}.lines"))  # not the temporary file of `write_output`
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _open(temporary)
    try:
        output = Output(path, file)
        yield output
        with keeping_answers(path):
            file.flush()
            os.fsync(file.fileno())
            file.close()
        last = made["stages"][-1]["name"] if "stages" in made else ""
        stage = stage_of_captions(output.good, last)
        other = stage not in (last, "")

        def write(new: Path) -> None:
            if not other:
                temporary.replace(new)
                return
            with _open(new) as file:
                for value in read_records(temporary):
                    Output(path, file).write(with_captions_of(stage, value))

        made |= {"captions_of": stage} if other else {}
        write_output(made_file(path), json.dumps(made, indent=1) + "\n")
        write_output(path, write)
    finally:
        with contextlib.suppress(OSError):
            file.close()
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _open(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n")


def stage_of_captions(good: Collection[str], last: str) -> str:
    """Returns the stage whose texts become the captions: ``last`` or, if that stage has no texts, the first stage in
    `FALLBACK` that has some. Returns "" if no stage has texts. ``good``: the stages that have texts.
    """
    return next((name for name in (last, *FALLBACK) if name in good), "")
