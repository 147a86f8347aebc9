"""Notes on results: caveats and likely mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tellapart.check.pairing import measure_fit
from tellapart.evaluation.context import UNSTATED, EvalContext
from tellapart.metrics.results import Results
from tellapart.metrics.slots import CHANCE, HUMAN


def plain_words(text: str) -> str:
    return " ".join(text.lower().split())


def notes_on_pairing(results: Results, references: Sequence[Sequence[str]] | None) -> list[str]:
    """Returns a note on each system whose captions fit their pictures' references no better than shuffled captions
    would.
    """
    lines = []
    for system, captions in results.captions.items():
        if references is not None and system != HUMAN and (fit := measure_fit(captions, references)) and fit.doubtful:
            lines.append(
                f"{system}: {100 * fit.misfits:.0f}% of its captions share more words with the references of "
                "most other pictures than with their own, as if they were shuffled (permutation test: p = "
                f"{fit.p:.2g}); are both files about the same pictures, in the same order and language?"
            )
    return lines


VERBATIM = 0.05  # warn if more than this share of captions is identical to queries


def notes_on_queries(results: Results, context: EvalContext) -> list[str]:
    """For each system, returns a line on searching its captions, and a warning if many captions are identical to
    queries.
    """
    lines = []
    queries = [{plain_words(text) for text in context.inputs.queries.get(id_, ())} for id_ in context.ids]
    for system, found in results.systems.items():
        if (interval := found.get("search_bm25_r1")) is not None and system != CHANCE:
            many = f"{len(context.flat_queries[0]):,} queries among {len(context.ids):,} pictures"
            first, ten = (f"{one.value:.1f}%" for one in (interval, found.get("search_bm25_r10", interval)))
            more = f" ({ten} among the top ten)" if "search_bm25_r10" in found else ""
            lines.append(f"{system}: with BM25 over its captions, {first} of the {many} rank their picture first{more}")
            pairs = list(zip(results.captions[system], queries, strict=True))
            if (same := sum(plain_words(text) in own for text, own in pairs)) > VERBATIM * len(pairs):
                lines.append(
                    f"{system}: {same:,} of its {len(pairs):,} captions are identical to a query for their picture"
                )
    return lines


def notes_on_cider(chosen: Iterable[str], context: EvalContext) -> list[str]:
    """Returns a note if CIDEr's document frequencies are meaningless because all pictures have equal references."""
    named = [name for name in ("cider", "cider_plain") if name in chosen]
    if not named or context.references is None or len({frozenset(texts) for texts in context.references}) > 1:
        return []
    why = "there is only one picture" if len(context.ids) == 1 else "all pictures have the same references"
    return [
        f"{', '.join(named)}: 0 because {why}, so every n-gram occurs in every document; score more pictures together"
    ]


def notes_on_confidences(context: EvalContext) -> list[str]:
    """Returns a note on each system whose captions make claims that have no stored confidence."""
    lines = []
    for system, slots in context.slots.items():
        claims_N = context.kept((UNSTATED, id(slots[0]))) or []
        if count := sum(map(len, claims_N)):
            pairs = zip(context.ids, claims_N, strict=True)
            id_, (_, words) = next((id_, min(claims)) for id_, claims in pairs if claims)
            lines.append(
                f"{system}: calibration omits {count:,} claims in its captions, such as '{' '.join(words)}' for "
                f"'{id_}', because the file states no confidence for them; were captions edited later? To measure all "
                "claims, run tellapart caption --claims again"
            )
    return lines


def notes_on_cut_texts(contexts: Iterable[EvalContext]) -> list[str]:
    """Returns notes on texts that were too long for a scorer, the language model or a text encoder."""
    notes = [note for where in contexts for note in [where.long_note()] if note]
    inputs = next(iter(contexts)).inputs
    for model, what in (
        (inputs.language_model, "their perplexity covers only what fits"),
        (inputs.text_encoder, "their BERTScore covers only what fits"),
        (inputs.query_encoder, "the search uses only what fits"),
    ):
        if model is not None and not isinstance(model, str) and model.cut_texts:
            notes.append(f"{model.cut_texts} texts exceed the window of {model.name} ({model.window} tokens); {what}")
    return notes
