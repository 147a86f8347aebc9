"""Local web pages for reviewing the captions of a folder, and bags (`tellapart.review.bags`); both use `app`."""
