complete -c waf -a '(command waf --completion-words 2>/dev/null)'
