"""Other releases of Debian in folders of this machine, in which our tests run with that system's own compilers."""
