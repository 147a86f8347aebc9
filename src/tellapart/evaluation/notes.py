"""Notes on results: caveats and likely mistakes."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from tellapart.check.pairing import measure_fit
from tellapart.evaluation.context import UNSTATED, EvalContext
from tellapart.evaluation.judges.judge import Judge
from tellapart.evaluation.search_queries import plain_words
from tellapart.metrics.results import Results
from tellapart.metrics.slots import CHANCE, HUMAN

VERBATIM = 0.05  # warn if more than this share of captions is identical to queries


def notes_on(results: Results, chosen: Container[str], contexts: Sequence[EvalContext]) -> list[str]:
    """Returns all notes on the results. ``contexts``: those of the first and of the additional scorers."""
    context = contexts[0]
    judge = context.inputs.judge
    return [
        *_on_pairing(results),
        *_on_queries(results, context),
        *_on_cider(chosen, context),
        *_on_confidences(context),
        *(judge.notes() if isinstance(judge, Judge) else []),
        *(note for where in contexts if (note := where.long_note())),
        *_on_cut_texts(context),
    ]


def _on_pairing(results: Results) -> Iterator[str]:
    """Yields a note on each system whose captions fit their pictures' references no better than shuffled captions
    would.
    """
    for system, captions in results.captions.items():
        if results.references is None or system == HUMAN:
            continue
        if (fit := measure_fit(captions, results.references)) and fit.doubtful:
            yield (
                f"{system}: {100 * fit.misfits:.0f}% of its captions share more words with the references of "
                "most other pictures than with their own, as if they were shuffled (permutation test: p = "
                f"{fit.p:.2g}); are both files about the same pictures, in the same order and language?"
            )


def _on_queries(results: Results, context: EvalContext) -> Iterator[str]:
    """Yields a note on searching each system's captions, and a warning if many captions are identical to queries."""
    queries = [{plain_words(text) for text in context.inputs.queries.get(id_, ())} for id_ in context.ids]
    for system, found in results.systems.items():
        if (interval := found.get("search_bm25_r1")) is None or system == CHANCE:
            continue
        many = f"{len(context.flat_queries[0]):,} queries among {len(context.ids):,} pictures"
        more = f" ({ten.value:.1f}% among the top ten)" if (ten := found.get("search_bm25_r10")) else ""
        yield (
            f"{system}: with BM25 over its captions, {interval.value:.1f}% of the {many} rank their picture first{more}"
        )
        captions = results.captions[system]
        same = sum(plain_words(text) in own for text, own in zip(captions, queries, strict=True))
        if same > VERBATIM * len(captions):
            yield f"{system}: {same:,} of its {len(captions):,} captions are identical to a query for their picture"


def _on_cider(chosen: Container[str], context: EvalContext) -> Iterator[str]:
    """Yields a note if CIDEr's document frequencies are meaningless because all pictures have equal references."""
    named = [name for name in ("cider", "cider_plain") if name in chosen]
    if named and context.references is not None and len(set(map(frozenset, context.references))) == 1:
        why = "there is only one picture" if len(context.ids) == 1 else "all pictures have the same references"
        yield (
            f"{', '.join(named)}: 0 because {why}, so every n-gram occurs in every document; score more pictures "
            "together"
        )


def _on_confidences(context: EvalContext) -> Iterator[str]:
    """Yields a note on each system whose captions make claims that have no stored confidence."""
    for system, slots in context.slots.items():
        claims_N = context.kept((UNSTATED, id(slots[0]))) or []
        if count := sum(map(len, claims_N)):
            id_, claims = next(pair for pair in zip(context.ids, claims_N, strict=True) if pair[1])
            yield (
                f"{system}: calibration omits {count:,} claims in its captions, such as "
                f"'{' '.join(min(claims)[1])}' for '{id_}', because the file states no confidence for them; were "
                "captions edited later? To measure all claims, run tellapart caption --claims again"
            )


def _on_cut_texts(context: EvalContext) -> Iterator[str]:
    """Yields notes on texts that were too long for the language model or a text encoder."""
    for model, what in (
        (context.inputs.language_model, "their perplexity covers only what fits"),
        (context.inputs.text_encoder, "their BERTScore covers only what fits"),
        (context.inputs.query_encoder, "the search uses only what fits"),
    ):
        if model is not None and not isinstance(model, str) and model.cut_texts:
            yield f"{model.cut_texts} texts exceed the window of {model.name} ({model.window} tokens); {what}"
