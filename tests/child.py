"""Types commands one after another in one process of their own, which imports the package once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from command_line import Done

PROGRAM = """
import contextlib, io, json, os, sys
paths, commands = json.load(sys.stdin)
sys.path[:0] = paths
from tellapart.cli import main
for words, environment in commands:
    out, err, status, before = io.StringIO(), io.StringIO(), 0, dict(os.environ)
    os.environ.update(environment)
    sys.argv = ["tellapart", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
    os.environ.clear()
    os.environ.update(before)
    print(json.dumps([status, out.getvalue(), err.getvalue()]), flush=True)
"""


def run_commands(
    *commands: Sequence[object],
    path: Sequence[Path] = (),
    environment: dict[str, str] | None = None,
    each: Sequence[dict[str, str]] = (),
    cwd: Path | None = None,
) -> list[Done]:
    """Returns what each command left. ``path``: folders for Python to import from. ``each``: variables by command."""
    variables = each or [{}] * len(commands)
    typed = [[list(map(str, words)), more] for words, more in zip(commands, variables, strict=True)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps([list(map(str, path)), typed]), capture_output=True,
        text=True, timeout=300, cwd=cwd, env={**os.environ} if environment is None else environment,
    )  # fmt: skip
    results = [Done(*json.loads(line)) for line in done.stdout.splitlines()]
    assert len(results) == len(commands), done.stderr
    return results
