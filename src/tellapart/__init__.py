"""tellapart: teach a captioner to say what tells a picture apart, and measure whether it does."""

__version__ = "0.2.0"
