"""The version, once for everything in Python; ``engine/Cargo.toml`` says the same (a test compares them)."""

VERSION = "0.1.0"
