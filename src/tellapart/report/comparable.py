"""Decides which results are comparable. They are if they use the same pictures and are measured in the same way."""

from __future__ import annotations

from tellapart.metrics.results import Results

# Parts of a signature that affect intervals or reference systems, but not the value itself.
_IDLE = ("bootstrap", "intervals", "human")
_NAMES = {
    "": "the signature",
    "scorer": "the scorer",
    "mined-by": "the scorer that mined the look-alikes",
    "pools": "the candidates",
    "truth": "the ground truth",
    "tok": "the tokenizer",
    "references": "the references",
    "tellapart": "the version of tellapart",
}
_SHORT = 60  # maximum number of characters of a signature's part in a message


def measuring_conditions(results: Results, key: str) -> tuple[object, ...]:
    """Returns the conditions that must be the same for two values of a metric: the pictures and the metric's signature.

    Results without a digest of their pictures are not comparable with any others.
    """
    return len(results.ids), results.ids_digest or id(results), *_parts(results, key).items()


def differences(a: Results, b: Results, key: str) -> list[str]:
    """Returns the reasons why two values of a metric are not comparable. The list is empty if they are comparable.

    Example: ``["the pictures (3 vs. 6)", "the scorer (clip@1 vs. clip@2)"]``.
    """
    found, n_a, n_b = [], len(a.ids), len(b.ids)
    if not (a.ids_digest and b.ids_digest):
        found.append("the pictures (their ids are unknown)")
    elif n_a != n_b:
        found.append(f"the pictures ({n_a:,} vs. {n_b:,})")
    elif a.ids_digest != b.ids_digest:
        found.append(f"the pictures ({n_a:,} each, but different ones)")
    left, right = _parts(a, key), _parts(b, key)
    for name in left | right:
        if left.get(name) != right.get(name):
            how = " vs. ".join(_short(side.get(name)) for side in (left, right))
            found.append(f"{_NAMES.get(name, name)} ({how})")
    return found


def _parts(results: Results, key: str) -> dict[str, str]:
    """Returns the parts of the signature that affect the metric's value, by name. Unnamed parts are joined under ""."""
    pairs = [part.partition(":") for part in results.signatures.get(key, "").split("|") if part]
    named = {name: value for name, colon, value in pairs if colon and name not in _IDLE}
    return {"": "|".join(name for name, colon, _ in pairs if not colon), **dict(sorted(named.items()))}


def _short(value: str | None) -> str:
    if not value:
        return "none stored"
    return value if len(value) <= _SHORT else value[: _SHORT - 1] + "…"
