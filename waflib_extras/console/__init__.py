"""What people see in the terminal: the progress, the last line, why a task runs, and what shells complete."""
