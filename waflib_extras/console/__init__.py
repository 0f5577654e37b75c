"""The output for people in the terminal: progress, the last line, why a task runs, and completions for shells."""
