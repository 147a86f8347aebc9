"""Lists the kinds of data, for the docs and for ``tellapart data``."""

from __future__ import annotations

from tellapart.data.reader import COMMON_KEYS, READERS, builtin_readers


def layouts_table() -> str:
    """Returns a Markdown table of the layouts by kind."""
    rows = [
        f"| `{reader.name}` | {have} | {typed} | {', '.join(f'`{extra}`' for extra in reader.needs)} |"
        for reader in builtin_readers()
        for have, typed in reader.layouts
    ]
    return "\n".join(["| kind | what you have | what to type | extra |", "|---|---|---|---|", *rows]) + "\n"


def keys_table() -> str:
    """Returns a Markdown table of the keys and the kinds that accept them."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for reader in builtin_readers():
        for key, text in reader.keys.items():
            kinds.setdefault((key, text), []).append(f"`{reader.name}`")
    common = [f"| `{key}` | all | {text} |" for key, text in COMMON_KEYS.items()]
    rows = [f"| `{key}` | {', '.join(names)} | {text} |" for (key, text), names in kinds.items()]
    return "\n".join(["| key | kinds | value |", "|---|---|---|", *common, *rows]) + "\n"


def kinds_of_data() -> tuple[list[tuple[str, str]], list[str]]:
    """Returns each kind with its help, including plug-ins, and one line per plug-in that cannot be loaded."""
    broken: list[str] = []
    return sorted((reader.name, reader.help) for reader in READERS.entries(broken=broken.append)), broken
