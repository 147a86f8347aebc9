"""Decides which results are comparable. They are if they use the same pictures and are measured in the same way."""

from __future__ import annotations

from tellapart.metrics.results import Results

# Parts of a signature that affect intervals or reference systems, but not the value itself.
_IDLE = ("bootstrap", "intervals", "human")
_NAMES = {
    "scorer": "the scorer",
    "mined-by": "the scorer that mined the look-alikes",
    "pools": "the candidates",
    "truth": "the ground truth",
    "tok": "the tokenizer",
    "references": "the references",
    "tellapart": "the version of tellapart",
}
_SHORT = 60  # maximum number of characters of a signature's part in a message


def test_conditions(results: Results, key: str) -> tuple[object, ...]:
    """Returns the conditions that must be the same for two values of a metric: the pictures and the metric's signature.

    Results without a digest of their pictures are not comparable with any others.
    """
    n, ids = _pictures(results)
    return (n, ids or id(results), _parts(results, key))


def differences(a: Results, b: Results, key: str) -> list[str]:
    """Returns the reasons why two values of a metric are not comparable. The list is empty if they are comparable.

    Example: ``["the pictures (3 vs. 6)", "the scorer (clip@1 vs. clip@2)"]``.
    """
    found = []
    (n_a, ids_a), (n_b, ids_b) = _pictures(a), _pictures(b)
    if not (ids_a and ids_b):
        found.append("the pictures (their ids are unknown)")
    elif (n_a, ids_a) != (n_b, ids_b):
        how = f"{n_a:,} vs. {n_b:,}" if n_a != n_b else f"{n_a:,} each, but different ones"
        found.append(f"the pictures ({how})")
    left, right = (dict(_parts(results, key)) for results in (a, b))
    for name in dict.fromkeys([*left, *right]):
        if left.get(name) != right.get(name):
            how = " vs. ".join(_short(side.get(name)) for side in (left, right))
            found.append(f"{_NAMES.get(name, name or 'the signature')} ({how})")
    return found


def _pictures(results: Results) -> tuple[int, str]:
    return len(results.ids), results.ids_digest or ""


def _parts(results: Results, key: str) -> tuple[tuple[str, str], ...]:
    """Returns (name, value) pairs for the parts of the signature that affect the metric's value. Unnamed parts are
    joined into one.
    """
    named: dict[str, str] = {}
    plain: list[str] = []
    for part in filter(None, results.signatures.get(key, "").split("|")):
        name, colon, value = part.partition(":")
        if not colon:
            plain.append(part)
        elif name not in _IDLE:
            named[name] = value
    return (("", "|".join(plain)), *sorted(named.items()))


def _short(value: str | None) -> str:
    if not value:
        return "none stored"
    return value if len(value) <= _SHORT else value[: _SHORT - 1] + "…"
