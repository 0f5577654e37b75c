"""
The states of files, folders and programs, and whether they have changed. It knows no tasks.

What tools remember of them is in files that ``files`` replaces as a whole.
"""
