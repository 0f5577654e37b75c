"""What the man pages and completions are made of: help texts as values, and these as roff and as shells' programs."""
