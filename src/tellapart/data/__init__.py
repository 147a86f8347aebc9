"""Data sets by specification: ``kind:path?key=value&key=value``.

    folder:photos                                   pictures in a folder, references in .txt beside them
    flickr8k:../shared/data/flickr8k?split=test     the original files
    coco:coco280?part=1/2&limit=100                 the first hundred of one half
    webdataset:shards/{00000..00012}.tar            tars of samples
    scenes:plain?split=test&n=500&seed=0            the synthetic world

The kind is one of `READERS`; ``docs/data.md`` shows the layout of each. A path alone will do for a folder of
pictures, a picture or clip, and files and folders whose kind follows from their suffix. The path ends at the
last ``?``; in a value, ``%26`` stands for ``&``. Keys that every kind knows, applied in this order:

    split=test        also val, dev, validation, …; several: split=train,val
    ids=list.json     the pictures that a list names: ids, file names or COCO's numbers, matched as captions are
    part=1/3          one of three disjoint parts of the list; two of them: part=1,2/3
    limit=100         the first hundred
    describe=PROMPT   each picture's references joined to one text behind this prompt (`tellapart.data.references`)

Files of rows (JSONL, CSV, TSV, Parquet, tars) are read once from end to end, and their items made when they are asked
for: a million rows need no more memory than a thousand. An unknown kind or key, an unknown split, ids that stand in a
file twice, and a data set without items are `UsageError`s. Pictures that the files name and the disk lacks, empty
files and downloads that were broken off are left out and listed in ``Dataset.missing``.
"""

from tellapart.data.dataset import Dataset, Skipped
from tellapart.data.open import open_data, open_many
from tellapart.data.reader import COMMON_KEYS, READERS, Reader
from tellapart.data.selection import Options

__all__ = ["COMMON_KEYS", "READERS", "Dataset", "Options", "Reader", "Skipped", "open_data", "open_many"]
