"""Verifiers of captions' claims (objects, attributes, relations)."""

from importlib.metadata import version

from tellapart.errors import need_extra

# Kinds of attributes that are recognized by their words; any other attribute is an action, a size or a state.
FINE_KINDS = ("colour", "count", "material")


def check_tagger() -> None:
    """Raises `MissingExtra` if the tagger is not installed. Does not load the tagger."""
    need_extra("words", "the extraction of claims", "HanTa")


def claim_extractor() -> str:
    """Returns the name and version of the claim extractor, for signatures."""
    return f"rules-1,HanTa-{version('HanTa')}"
