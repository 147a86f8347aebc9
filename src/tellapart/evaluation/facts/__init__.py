"""Claims of captions: objects, attributes, relations; and verifiers that say which of them are true."""

from tellapart.errors import need_extra

# Kinds of attributes that are told by their words; any other attribute is an action, a size, a state.
FINE_KINDS = ("colour", "count", "material")


def check_tagger() -> None:
    """`MissingExtra` where there is no tagger; nothing is loaded."""
    need_extra("words", "the extraction of claims", "HanTa")
