"""Writes texts and pictures to one file: Parquet in Hugging Face's layout, or a tar file (WebDataset)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tellapart.data.webdataset_writing import bytes_of, end_tar, write_sample
from tellapart.errors import MissingExtra
from tellapart.purposes.edited import Edited
from tellapart.types import Item
from tellapart.utils.blocks import blocks_of

PARQUET_ROWS = 64  # maximum number of pictures in memory


def _tar(path: Path, rows: Sequence[tuple[Item, Edited]]) -> None:
    with path.open("wb") as file:
        for number, (item, one) in enumerate(rows):
            write_sample(file, number, item, one.text.split("\n"))
        end_tar(file)


def _parquet(path: Path, rows: Sequence[tuple[Item, Edited]]) -> None:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtra("parquet", "writing Parquet") from None
    lists = any("\n" in one.text for _, one in rows)
    text, feature = pyarrow.string(), {"dtype": "string", "_type": "Value"}
    image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    texts_of = {"feature": feature, "_type": "List"} if lists else feature
    features = {"id": feature, "image": {"_type": "Image"}, "text": texts_of}
    schema = pyarrow.schema(
        [("id", text), ("image", image), ("text", pyarrow.list_(text) if lists else text)],
        {"huggingface": json.dumps({"info": {"features": features}})},
    )
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for some in blocks_of(rows, PARQUET_ROWS):
            images = [{"bytes": bytes_of(item)[0], "path": item.id} for item, _ in some]
            texts = [one.text.split("\n") if lists else one.text for _, one in some]
            writer.write_table(
                pyarrow.table({"id": [item.id for item, _ in some], "image": images, "text": texts}, schema)
            )


PACKED: Mapping[str, Callable[[Path, Sequence[tuple[Item, Edited]]], None]] = {".parquet": _parquet, ".tar": _tar}
