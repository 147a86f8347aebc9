"""The decoding settings that the options of ``tellapart caption`` select."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tellapart.errors import UsageError, nearest
from tellapart.inference.options import CaptionOptions, refuse
from tellapart.models.decoding import SCORER_WEIGHT, Decoding

CONSENSUS_TEMPERATURE = 0.6


def _number(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return read


def _rule(text: str) -> str:
    if text not in ("new", "all"):
        raise ValueError
    return text


def _kept(text: str) -> bool:
    if text != "keep":
        raise ValueError
    return True


# Rarely used decoding settings. Each has a parser, and a description of valid values for error messages.
DECODING: dict[str, tuple[Callable[[str], Any], str]] = {
    "temperature": (_number(0.01, 100), "a number from 0.01 to 100"),
    "length_penalty_over": (_rule, "new (tokens) or all (with the prompt, as in the papers)"),
    "scorer_weight": (_number(0.001, 1e6), "a number of at least 0.001"),
    "confidence": (_number(0.01, 0.99), "a number from 0.01 to 0.99"),
    "paragraphs": (_kept, "keep (by default, a caption's lines are joined into one)"),
}


def key_values(
    option: str, values: Sequence[str] | None, known: Mapping[str, tuple[Callable[[str], Any], str]]
) -> dict[str, Any]:
    """Parses the comma-separated KEY=VALUE pairs of a repeatable option. Raises `UsageError`."""
    result: dict[str, Any] = {}
    for pair in (part.strip() for text in values or () for part in text.split(",")):
        key, equals, value = pair.partition("=")
        if key not in known or not equals:
            raise UsageError(f"{option} {pair}: unknown setting '{key}'{nearest(key, known)}")
        read, expected = known[key]
        try:
            result[key] = read(value)
        except ValueError:
            raise UsageError(f"{option} {key}: expected {expected}, got {value}") from None
    return result


def caption_decoding(options: CaptionOptions, default: Decoding) -> Decoding:
    """Returns the decoding settings for ``caption``. Settings without an option come from the model's ``default``.

    Raises `UsageError` if an option would have no effect.
    """
    rare = key_values("--decoding", options.decoding, DECODING)
    if options.scorer is not None and options.consensus is not None:
        rare.setdefault("scorer_weight", SCORER_WEIGHT)
    elif "scorer_weight" in rare:
        raise UsageError(
            "--decoding scorer_weight requires --consensus and --scorer; add, for example, --consensus 48 "
            "--scorer MODEL, or remove scorer_weight"
        )
    decoding = _kind_of_decoding(options, rare.pop("temperature", None), default)
    if "length_penalty_over" in rare and decoding.kind != "beam":
        raise UsageError("--decoding length_penalty_over requires beam search; add --beams 5, or remove this setting")
    return decoding.model_copy(update=rare)


def _kind_of_decoding(options: CaptionOptions, temperature: float | None, default: Decoding) -> Decoding:
    """Returns the decoding method that the options select: greedy, beam search, sampling or MBR (consensus)."""
    beams, best_of, samples, consensus = options.beams, options.best_of, options.samples, options.consensus
    max_tokens = options.max_tokens or default.max_tokens
    rule = default.length_penalty_over
    if consensus is not None:
        others = {"--beams": beams, "--best-of": best_of, "--samples": samples}
        refuse(others, f"cannot be combined with --consensus {consensus}")
        drawn = CONSENSUS_TEMPERATURE if temperature is None else temperature
        return Decoding(kind="consensus", candidates=consensus, temperature=drawn, max_tokens=max_tokens)
    if best_of is not None and samples is not None:
        raise UsageError("--best-of and --samples cannot be combined; remove one of them")
    if best_of is None and samples is None:
        if temperature is not None:
            raise UsageError(
                "--decoding temperature requires sampling; add --best-of 10 --scorer MODEL, "
                "--consensus 48, or --samples 5"
            )
        if beams is None:
            return default.model_copy(update={"max_tokens": max_tokens})
        if beams == 1:
            return Decoding(beams=1, max_tokens=max_tokens)
        return Decoding(kind="beam", beams=beams, length_penalty_over=rule, max_tokens=max_tokens)
    if beams is not None and best_of is not None:
        raise UsageError("--beams and --best-of cannot be combined, because --best-of samples; remove one of them")
    if beams is not None and samples is not None:
        if temperature is not None:
            raise UsageError(
                "--decoding temperature cannot be combined with --beams and --samples, because beam search does not "
                "sample; remove temperature, or remove --beams"
            )
        if samples > beams:
            raise UsageError(f"--beams {beams} is less than --samples {samples}; increase --beams")
        return Decoding(kind="beam", beams=beams, length_penalty_over=rule, samples=samples, max_tokens=max_tokens)
    return Decoding(kind="sample", samples=samples or 1, temperature=temperature or 1.0, max_tokens=max_tokens)
