"""``nocaps:FILE`` or ``nocaps:FOLDER``: nocaps (Agrawal et al. 2019), with all or some of its domains.

``nocaps_val_4500_captions.json`` is in COCO's layout, and each image has a ``domain``: ``in-domain``, ``near-domain``
or ``out-domain``. ``domain=in`` selects one domain, and ``domain=near,out`` selects two. The test file has neither
captions nor domains. Pictures are found as for ``coco:``; the split is inferred from the file name, and the id is the
image's id.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tellapart.data.dataset import ReadItems
from tellapart.data.listed_pictures import finish_items
from tellapart.data.options import Options
from tellapart.data.reader import IMAGES, READERS, Reader
from tellapart.data.readers.coco import annotation_files, read_files
from tellapart.data.skipped import Skipped
from tellapart.errors import UsageError, nearest
from tellapart.utils.comma_lists import comma_list

DOMAINS = {name: f"{name}-domain" for name in ("in", "near", "out")}


def read(path: Path, options: Options) -> ReadItems:
    """Returns items in the order of the file's ``images``."""
    names = comma_list(options.text("domain"))
    for name in names:
        if name not in DOMAINS and name not in DOMAINS.values():
            raise UsageError(f"{options.spec}: unknown domain '{name}'{nearest(name, DOMAINS)}")
    wanted, seen = {DOMAINS.get(name, name) for name in names}, set()

    def of_domain(image: dict[str, Any]) -> bool:
        seen.add(image.get("domain"))
        return not wanted or image.get("domain") in wanted

    missing = Skipped()
    items = read_files(annotation_files(path, options, "nocaps", "nocaps*.json"), options, missing, of_domain)
    if wanted and not seen & wanted:
        there = ", ".join(sorted(str(name) for name in seen if name)) or "none"
        raise UsageError(f"{options.spec}: no picture has domain={options.text('domain')}; available domains: {there}")
    return finish_items(items, options, str(path), missing)


READERS.register(
    Reader(
        name="nocaps",
        factory=read,
        help="nocaps, all or some of its domains",
        keys={**IMAGES, "domain": "`in`, `near`, `out`, or several: `near,out`"},
        layouts=(("nocaps, all or some of its domains", "`nocaps:nocaps_val_4500_captions.json?domain=near,out`"),),
        published=True,
    )
)
