"""Processes that are forked from one which has imported the package: seconds of processor time less for each.

They are what `subprocess` starts but for the imports: one that is killed leaves what a killed command leaves.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

_SERVER = multiprocessing.get_context("forkserver")


def fork(
    work: Callable[..., object],
    *arguments: object,
    printed: Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> ForkServerProcess:
    """Starts ``work``, a function of a module's top level, in a process of its own.

    printed: the file of what it prints. environment: default: this process's. The server starts with the first call;
    what it imports reads the environment of that moment.
    """
    _SERVER.set_forkserver_preload(["tellapart.cli.train", "tellapart.training.runs"])  # and so torch and transformers
    given = dict(os.environ if environment is None else environment)
    process = _SERVER.Process(target=_run, args=(work, arguments, printed, cwd or Path.cwd(), given))
    process.start()
    return process


def fork_ranks(
    ranks: int, work: Callable[..., object], *arguments: object, printed: Path, environment: Mapping[str, str]
) -> list[ForkServerProcess]:
    """Starts ``work`` in so many processes, which find each other by the variables that every launcher sets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables: dict[str, object] = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": ranks}
    processes = []
    for rank in range(ranks):
        place = variables | {"RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks} if ranks > 1 else {}
        given = {**environment, **{key: str(value) for key, value in place.items()}}
        processes.append(fork(work, *arguments, printed=printed, environment=given))
    return processes


def _run(work: Any, arguments: Any, printed: Path, cwd: Path, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    file = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    try:
        work(*arguments)
    finally:
        atexit._run_exitfuncs()  # as the interpreter does; multiprocessing does not


def finish(processes: Sequence[ForkServerProcess], printed: Path) -> None:
    """Waits for the processes, and ends the others as soon as one has failed, which fails with what was printed."""
    while alive := [process for process in processes if process.exitcode is None]:
        wait([process.sentinel for process in alive])
        if any(process.exitcode for process in processes):
            for process in alive:
                process.kill()
    assert not any(process.exitcode for process in processes), printed.read_text()[-4000:]


def type_command(*words: object) -> None:
    """Types a command, as the installed script does: `fork(type_command, "train", …)`."""
    from tellapart.cli import main

    sys.argv = ["tellapart", *map(str, words)]
    main()
