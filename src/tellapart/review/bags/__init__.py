"""Page for reviewing bags; its decisions are stored by `tellapart.bags.review`."""
