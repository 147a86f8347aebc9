"""The command line: each module with an `app` is a command or a group of commands, and `entry` runs them.

Verbs are thin: they read options, call one function of the package, and show what it returns.
"""

from tellapart.utils.registry import lazily

__getattr__, __dir__ = lazily(__name__, {"main": "entry"})
