"""Served pages: allowed origins, requests, files of a page, pictures, and the server."""
