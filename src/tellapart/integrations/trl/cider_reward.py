"""The CIDEr-D reward for TRL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tellapart.data.records import id_text
from tellapart.errors import UsageError
from tellapart.integrations.trl.rows import Completion, column, text_of
from tellapart.metrics.cider import CiderD


class _Cider:
    """CIDEr-D reward for TRL, from 0 to 10 (papers 2 and 4).

    references: the references of all training pictures by id. ``id_column`` contains the id of each row's picture.
        Document frequencies are computed from these references, so the reward does not depend on the batch, and ranks
        need not exchange anything.

    Picklable, so that spawned processes can load it.
    """

    __name__ = "cider"  # the name in TRL's logs

    def __init__(self, references: Mapping[str, Sequence[str]], *, id_column: str = "id") -> None:
        self.row_of_id, self.id_column = {id_text(id_): row for row, id_ in enumerate(references)}, id_column
        self.score = CiderD([list(texts) for texts in references.values()])

    def __call__(self, completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        ids = [
            id_text(id_) for id_ in column(columns, self.id_column, "the id of each row's picture in the references")
        ]
        if missing := [id_ for id_ in ids if id_ not in self.row_of_id]:
            raise UsageError(
                f"no references for picture '{missing[0]}'; references must contain the '{self.id_column}' of every row"
            )
        rows = [self.row_of_id[id_] for id_ in ids]
        return [float(value) for value in self.score([text_of(completion) for completion in completions], rows)]


cider = _Cider
