"""Local web pages for reviewing the captions of a folder, or bags (`tellapart.review.bags`). Both pages use `app`."""
