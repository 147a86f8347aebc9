"""``--nproc N``: runs the command in N processes on this machine, using torch's elastic launcher."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tellapart.errors import TellapartError, UsageError

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

LAUNCHED = "TELLAPART_LAUNCHED"  # set in the processes that `in_processes` starts
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # names the file in which a launched process records its error
INTERRUPTED = 130  # exit status after Ctrl-C
LOST = re.compile(r"gloo|nccl|connection (closed|reset)|store|broken pipe", re.IGNORECASE)

Nproc = Annotated[
    int | None,
    typer.Option("--nproc", min=1, metavar="N", help="Number of training processes on this machine, one per GPU."),
]


def in_processes(count: int | None) -> None:
    """Runs the current command in ``count`` processes, then exits this process with their status.

    Returns without starting anything if ``count`` is None or 1, and in the started processes themselves. The output
    looks like that of a single process. When a process fails, its error is reported in one line, and the others are
    stopped. Raises `UsageError` if ``count`` exceeds the number of GPUs.
    """
    import torch
    from torch.distributed.elastic import multiprocessing
    from torch.distributed.launcher import api

    if count is None or count == 1 or os.environ.get(LAUNCHED):
        return
    from tellapart.models.devices import best_device

    device = best_device().type
    if device == "cuda" and count > (gpus := torch.cuda.device_count()):
        raise UsageError(f"--nproc {count}: this machine has {gpus} GPUs; pass --nproc {gpus} or less")
    os.environ[LAUNCHED] = "1"
    if device == "cpu":
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    logging.disable(logging.CRITICAL)  # hides the launcher's messages; this process reports errors below
    config = api.LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=count, rdzv_backend="c10d", rdzv_endpoint="localhost:0",
        run_id=f"tellapart-{os.getpid()}", max_restarts=0,
    )  # fmt: skip
    signals = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
    handlers = {number: signal.getsignal(number) for number in signals}  # the launcher does not restore them
    try:
        api.elastic_launch(config, sys.executable)("-m", "tellapart", *sys.argv[1:])
    except multiprocessing.errors.ChildFailedError as error:
        raise _Failed(*explained(error.failures)) from None
    except multiprocessing.SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise TellapartError(f"stopped by {signal.Signals(error.sigval).name}; the last checkpoint is kept") from None
    finally:
        del os.environ[LAUNCHED]
        for number, handler in handlers.items():
            signal.signal(number, handler)
    raise typer.Exit(0)


class _Failed(TellapartError):
    """An error raised by one of the processes. ``exit_code``: exit status of that process."""

    def __init__(self, line: str, status: int) -> None:
        super().__init__(line)
        self.exit_code = status


def explained(failures: Mapping[int, ProcessFailure]) -> tuple[str, int]:
    """Returns a one-line explanation of why the processes ended, and the exit status.

    The cause is a process that was killed or that failed on its own, not one that lost its connection as a result.

    failures: the failed processes by rank.
    """

    def order(entry: tuple[int, ProcessFailure]) -> tuple[bool, bool, int]:
        failure = entry[1]
        stopped = failure.exitcode == -signal.SIGTERM  # the launcher stops the others after a failure
        lost = failure.exitcode > 0 and (not _recorded(failure) or _recorded(failure).get("lost", False))
        return stopped, lost, failure.timestamp

    rank, cause = min(failures.items(), key=order)
    if cause.exitcode < 0:
        name = signal.Signals(-cause.exitcode).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return (
            f"rank {rank} was terminated by {name}{hint}, and the other ranks were stopped; saved "
            "checkpoints are kept; run the same command again to resume (train: with --resume)"
        ), 1
    if cause.exitcode == INTERRUPTED:
        raise KeyboardInterrupt
    recorded = _recorded(cause)
    if trace := recorded.get("traceback"):
        print(trace, file=sys.stderr)
    return recorded.get("line", f"rank {rank} exited with status {cause.exitcode}"), cause.exitcode


def _recorded(failure: ProcessFailure) -> dict[str, Any]:
    data = failure.error_file_data
    found: dict[str, Any] = (
        data.get("message", {}).get("extraInfo", {}) if isinstance(data.get("message"), dict) else {}
    )
    return found


def end_rank(error: BaseException, line: str | None, status: int) -> NoReturn:
    """Exits a process that `in_processes` started, and passes its error to the launcher."""
    info = {
        "timestamp": str(int(time.time())),
        "line": line or f"{type(error).__name__}: {error}",
        "lost": line is None and bool(LOST.search(str(error))),
        "traceback": "" if line is not None else "".join(traceback.format_exception(error)),
    }
    if file := os.environ.get(ERROR_FILE):
        Path(file).write_text(json.dumps({"message": {"message": info["line"], "extraInfo": info}}), encoding="utf-8")
    sys.stdout.flush()
    os._exit(status)  # a regular exit would wait for the other processes, which are gone
