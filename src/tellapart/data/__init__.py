"""Data sets by specification: ``kind:path?key=value&key=value``.

    folder:photos                                   pictures in a folder, references in .txt files next to them
    flickr8k:../shared/data/flickr8k?split=test     the original files
    coco:coco280?part=1/2&limit=100                 the first hundred of one half
    webdataset:shards/{00000..00012}.tar            tars of samples
    scenes:plain?split=test&n=500&seed=0            the synthetic world

The kind is one of `READERS`; ``docs/data.md`` shows the layout of each kind. It may be omitted for a folder of
pictures, a picture or clip, and files and folders whose suffix determines the kind. The path ends at the last ``?``;
write ``%26`` for ``&`` in a value. All kinds accept these keys, which are applied in this order:

    split=test        also val, dev, validation, …; several: split=train,val
    ids=list.json     only the pictures in a list of ids, file names or COCO numbers, matched like captions
    part=1/3          one of three disjoint parts; several parts: part=1,2/3
    limit=100         the first hundred
    describe=PROMPT   joins each picture's references into one text after this prompt (`tellapart.data.descriptions`)

Files of rows (JSONL, CSV, TSV, Parquet, tars) are indexed in a single pass, and items are created on demand, so that a
million rows need no more memory than a thousand. An unknown kind, key or split, duplicate ids, and a data set without
items raise `UsageError`. Missing pictures, empty files and incomplete downloads are skipped, and listed in
``Dataset.missing``.
"""

from tellapart.data.dataset import Dataset
from tellapart.data.open import open_data, open_many
from tellapart.data.options import Options
from tellapart.data.reader import COMMON_KEYS, READERS, Reader
from tellapart.data.skipped import Skipped

__all__ = ["COMMON_KEYS", "READERS", "Dataset", "Options", "Reader", "Skipped", "open_data", "open_many"]
