"""Opens and runs a search from command-line arguments."""

from __future__ import annotations

from pathlib import Path

from tellapart.captions.sidecar_layout import BESIDE
from tellapart.captions.store import CaptionStore
from tellapart.data import open_many
from tellapart.errors import UsageError
from tellapart.models.devices import resolve_device
from tellapart.scorers.load import load_scorer
from tellapart.search.index import SearchIndex
from tellapart.search.page import QueryHits
from tellapart.search.queries import read_queries
from tellapart.utils.messages import say

CAPTION_SUFFIXES = (*BESIDE, ".xmp")


def open_index(folder: str, captions: Path | None, scorer: str | None, device: str) -> SearchIndex:
    """Builds the index of a folder's captions and, with a scorer, of its pictures. Raises `UsageError`."""
    dataset = open_many([folder])
    if captions is not None and str(captions).lower() not in CAPTION_SUFFIXES and not captions.is_file():
        raise UsageError(f"--captions {captions}: no such file; expected a file of captions, or a suffix: "
                         f"{', '.join(CAPTION_SUFFIXES)}")  # fmt: skip
    store = CaptionStore.open(dataset, captions, Path(folder))
    texts = store.captions()
    if scorer is None and not any(one.text or one.texts for one in texts.values()):
        raise UsageError(
            f"{folder}: none of {len(texts):,} pictures has a caption in {store.layout.name}; write captions "
            f"(tellapart caption MODEL {folder} -o captions.jsonl), pass their file with --captions, or pass --scorer "
            "MODEL to search only the pictures"
        )
    loaded = None if scorer is None else load_scorer(scorer, resolve_device(device))
    index = SearchIndex.build(dataset, texts, loaded)
    for line in dataset.report():
        say(line)
    return index


def search_all(index: SearchIndex, query: str | None, queries: Path | None, count: int) -> list[QueryHits]:
    """Runs one query, or all queries in a file. Raises `UsageError` if the file does not contain queries."""
    if query is not None:
        return [QueryHits(query, index.search(query, count))]
    assert queries is not None
    return [QueryHits(text, index.search(text, count), id_) for text, id_ in read_queries(queries, index.items)]
