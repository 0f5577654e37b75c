# Written by utils/manual.py from what --help says: change that instead.
complete -c waf -a '(command waf --completion-words 2>/dev/null)'
