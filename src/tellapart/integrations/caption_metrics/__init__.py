"""A metric for Hugging Face's evaluate. Load it with
``evaluate.load(tellapart.integrations.caption_metrics.FOLDER)``.
"""

from pathlib import Path

FOLDER = str(Path(__file__).parent)
