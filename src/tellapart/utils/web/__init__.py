"""Serves pages: allowed origins, requests, page files, pictures, and the server."""
