"""Five people's first sessions; each is a way through the pages, with what they want at its end."""

ALL = {}
