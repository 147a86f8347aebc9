"""Claims of captions: objects, attributes, relations; and verifiers that say which of them are true."""
