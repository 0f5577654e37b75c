# Written by utils/manual.py from what --help says: change that instead.
complete -c wafd -f
complete -c wafd -n 'not __fish_seen_subcommand_from start status stop dashboard serve completion' -a start -d 'make sure that an engine runs; prints how to reach it'
complete -c wafd -n 'not __fish_seen_subcommand_from start status stop dashboard serve completion' -a status -d 'tell what it does and did'
complete -c wafd -n 'not __fish_seen_subcommand_from start status stop dashboard serve completion' -a stop -d 'end it when its running commands have ended'
complete -c wafd -n 'not __fish_seen_subcommand_from start status stop dashboard serve completion' -a dashboard -d 'show what it does, as it happens, in a browser'
complete -c wafd -n 'not __fish_seen_subcommand_from start status stop dashboard serve completion' -a serve -d 'keep a cache for a team, which other machines ask over TCP'
complete -c wafd -n 'not __fish_seen_subcommand_from start status stop dashboard serve completion' -a completion -d 'print what has a shell complete wafd, wafcc and waf'
complete -c wafd -n "not __fish_seen_subcommand_from start status stop dashboard serve completion" -l foreground -d 'serve until stopped, with the log on standard error'
complete -c wafd -n "not __fish_seen_subcommand_from start status stop dashboard serve completion" -l help
complete -c wafd -n "not __fish_seen_subcommand_from start status stop dashboard serve completion" -l version
complete -c wafd -n "__fish_seen_subcommand_from start" -l tcp -d 'also listen on a port of 127.0.0.1, for clients that show a token'
complete -c wafd -n "__fish_seen_subcommand_from start" -l idle -x -d 'leave after that long without a client [600, or $WAFD_IDLE]'
complete -c wafd -n "__fish_seen_subcommand_from start" -l foreground -d 'serve until stopped, with the log on standard error'
complete -c wafd -n "__fish_seen_subcommand_from start" -l help
complete -c wafd -n "__fish_seen_subcommand_from status" -l json -d 'for programs'
complete -c wafd -n "__fish_seen_subcommand_from status" -l help
complete -c wafd -n "__fish_seen_subcommand_from stop" -l now -d 'end running commands too'
complete -c wafd -n "__fish_seen_subcommand_from stop" -l help
complete -c wafd -n "__fish_seen_subcommand_from dashboard" -l port -x -d 'of 127.0.0.1; 0 is any that is free [0]'
complete -c wafd -n "__fish_seen_subcommand_from dashboard" -l no-open -d 'do not open the page in the desktop\'s browser'
complete -c wafd -n "__fish_seen_subcommand_from dashboard" -l server -x -d 'also show how a team\'s server does: its address as in the setting remote of wafcc'
complete -c wafd -n "__fish_seen_subcommand_from dashboard" -l host -x -d 'a name by which it may be asked beside localhost, where a proxy leads here; may be repeated'
complete -c wafd -n "__fish_seen_subcommand_from dashboard" -l help
complete -c wafd -n "__fish_seen_subcommand_from serve" -l listen -x -d 'address and port; port 0 is any that is free. It prints those it listens on'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l plain -x -d 'the same without TLS, where --listen has it: for clients that do not speak it'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l host -x -d 'a name or address by which HTTP may be asked, beside those of this machine; may be repeated'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l store -x -a '(__fish_complete_directories)' -d 'folder of the store [$XDG_CACHE_HOME/wafd-serve, or ~/.cache/wafd-serve]'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l max-size -x -d 'of the store; what was not used longest goes first [50G]'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l quota -x -d 'of what a namespace holds, - is the common one; what it did not use longest goes first [none]'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l memory -x -d 'for contents that were asked for lately [256M]'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l tokens -r -F -d 'who may do what: lines of "NAME read|write NAMESPACE TOKEN", mode 0600; it is read again when it changes'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l tls-cert -r -F -d 'certificates of this server, PEM; then all speak TLS'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l tls-key -r -F -d 'their private key, PEM'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l tls-client-ca -r -F -d 'clients have to show a certificate that one of these has signed'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l log-writes -r -F -d 'a line of JSON for whatever somebody writes'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l open-metrics -d '/metrics and /status take no token from this machine'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l max-connections -x -d '[10500]'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l max-blob -x -d 'of one blob or value [1G]'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l uploads -x -d 'memory for what comes in; the rest of it goes to files [256M]'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l rate -x -d 'requests per second and connection; 0 is any number [0]'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l patience -x -d 'for what has begun and does not go on [30]'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l workers -x -d 'threads that serve [one for two processors, at most 8]'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l new-token -x -d 'add a token to the file of --tokens, and print it; it may read'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l write -d 'it may also write'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l namespace -x -d 'its keys are its own namespace\'s; - is the common one [-]'
complete -c wafd -n "__fish_seen_subcommand_from serve" -l help
complete -c wafd -n "__fish_seen_subcommand_from completion" -l help
complete -c wafd -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'
