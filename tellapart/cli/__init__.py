"""The command line: `app` has the verbs in the order of work, each other module one verb or the way results are shown.

Verbs are thin: they read options, call one function of the package, and show what it returns.
"""


def main() -> None:
    """Run the command ``tellapart``; loads the verbs on first use."""
    from tellapart.cli.app import main as run

    run()
