"""The command line: each module with an `app` is a verb, `app` finds them, the others are what verbs share.

Verbs are thin: they read options, call one function of the package, and show what it returns.
"""


def main() -> None:
    """Run the command ``tellapart``; loads the verbs on first use."""
    from tellapart.cli.app import main as run

    run()
