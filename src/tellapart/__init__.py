"""tellapart: teach a captioner to say what tells a picture apart, and measure whether it does."""

from importlib import import_module

__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    """``tellapart.load_captioner``, imported with torch and transformers when it is first read."""
    if name != "load_captioner":
        raise AttributeError(f"module 'tellapart' has no attribute '{name}'")

    return import_module("tellapart.captioners").load_captioner
