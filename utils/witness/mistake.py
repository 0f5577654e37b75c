"""What the caller can mend."""


class Mistake(Exception):
	"""The caller can mend this; the message says how."""
