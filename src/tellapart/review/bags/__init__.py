"""The page for reviewing bags; decisions are stored by `tellapart.bags.review`."""
