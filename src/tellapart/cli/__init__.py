"""The command line: each module with an `app` is a verb, `app` finds them, the others are what verbs share.

Verbs are thin: they read options, call one function of the package, and show what it returns.
"""

import atexit
import gc
import sys


def main() -> None:
    """Run the command ``tellapart``; loads the verbs on first use."""
    # Objects made at start-up stay alive. Without this, garbage collection takes longer than a short command's work.
    gc.set_threshold(100_000)
    atexit.register(_skip_last_collection)
    from tellapart.cli.app import main as run

    run()


def _skip_last_collection() -> None:
    """Spares the exit its garbage collection, except of Triton, which prints what is left of it as leaks."""
    if "triton" not in sys.modules:
        gc.freeze()
