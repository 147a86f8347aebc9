"""The command line. Each module with an `app` is a command or a group of commands;
`whole_app` collects them, and `entry` runs the one that was typed.

Commands are thin: they read their options, call one function of the package, and show the result.
Their help, and that of their options, comes from docstrings (`signature_options.with_options`).
"""

from tellapart.utils.lazy_names import lazily

__getattr__, __dir__ = lazily(__name__, {"main": "entry"})
