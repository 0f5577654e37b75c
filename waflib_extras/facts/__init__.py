"""The states of files, folders and programs, and whether they have changed. It knows no tasks."""
