"""What the pages that this package serves share: the server, its security, its style, pictures for a browser."""
