"""Makes the links of the README absolute for the package index; everything else is in pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
REPOSITORY = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"]


def absolute(text: str) -> str:
    """Returns the Markdown with links to files of the repository as addresses; images as their raw files."""
    raw = REPOSITORY.replace("https://github.com/", "https://raw.githubusercontent.com/")
    text = re.sub(r"(!\[[^]]*\])\((?!https?:|#)([^)]+)\)", rf"\1({raw}/main/\2)", text)
    return re.sub(r"(?<!!)(\[[^]]*\])\((?!https?:|#)([^)]+)\)", rf"\1({REPOSITORY}/blob/main/\2)", text)


if __name__ == "__main__":
    readme = absolute((HERE / "README.md").read_text("utf-8"))
    setup(long_description=readme, long_description_content_type="text/markdown")
