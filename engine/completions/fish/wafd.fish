# Written by cargo run --example manual from what --help says: change that instead.
# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_wafd_global_optspecs
	string join \n tcp idle= foreground h/help V/version
end

function __fish_wafd_needs_command
	# Figure out if the current invocation already has a command.
	set -l cmd (commandline -opc)
	set -e cmd[1]
	argparse -s (__fish_wafd_global_optspecs) -- $cmd 2>/dev/null
	or return
	if set -q argv[1]
		# Also print the command, so this can be used to figure out what it is.
		echo $argv[1]
		return 1
	end
	return 0
end

function __fish_wafd_using_subcommand
	set -l cmd (__fish_wafd_needs_command)
	test -z "$cmd"
	and return 1
	contains -- $cmd[1] $argv
end

complete -c wafd -n "__fish_wafd_needs_command" -l idle -d 'leave after that long without a client [600, or $WAFD_IDLE]' -r -f
complete -c wafd -n "__fish_wafd_needs_command" -l tcp -d 'also listen on a port of 127.0.0.1, for clients that show a token'
complete -c wafd -n "__fish_wafd_needs_command" -l foreground -d 'serve until stopped, with the log on standard error'
complete -c wafd -n "__fish_wafd_needs_command" -s h -l help -d 'Print help'
complete -c wafd -n "__fish_wafd_needs_command" -s V -l version -d 'Print version'
complete -c wafd -n "__fish_wafd_needs_command" -f -a "start" -d 'make sure that an engine runs; prints how to reach it'
complete -c wafd -n "__fish_wafd_needs_command" -f -a "status" -d 'tell what it does and did'
complete -c wafd -n "__fish_wafd_needs_command" -f -a "stop" -d 'end it when its running commands have ended'
complete -c wafd -n "__fish_wafd_needs_command" -f -a "dashboard" -d 'show what it does, as it happens, in a browser'
complete -c wafd -n "__fish_wafd_needs_command" -f -a "serve" -d 'keep a cache for a team, which other machines ask over TCP'
complete -c wafd -n "__fish_wafd_needs_command" -f -a "worker" -d 'run the commands of a cluster on this machine'
complete -c wafd -n "__fish_wafd_needs_command" -f -a "completion" -d 'print what has a shell complete wafd, wafcc and waf'
complete -c wafd -n "__fish_wafd_using_subcommand start" -l idle -d 'leave after that long without a client [600, or $WAFD_IDLE]' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand start" -l tcp -d 'also listen on a port of 127.0.0.1, for clients that show a token'
complete -c wafd -n "__fish_wafd_using_subcommand start" -l foreground -d 'serve until stopped, with the log on standard error'
complete -c wafd -n "__fish_wafd_using_subcommand start" -s h -l help -d 'Print help'
complete -c wafd -n "__fish_wafd_using_subcommand status" -l json -d 'for programs'
complete -c wafd -n "__fish_wafd_using_subcommand status" -s h -l help -d 'Print help'
complete -c wafd -n "__fish_wafd_using_subcommand stop" -l now -d 'end running commands too'
complete -c wafd -n "__fish_wafd_using_subcommand stop" -s h -l help -d 'Print help'
complete -c wafd -n "__fish_wafd_using_subcommand dashboard" -l port -d 'of 127.0.0.1; 0 is any that is free' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand dashboard" -l server -d 'also show how a team\'s server does: its address as in the setting remote of wafcc' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand dashboard" -l host -d 'a name by which it may be asked beside localhost, where a proxy leads here; may be repeated' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand dashboard" -l no-open -d 'do not open the page in the desktop\'s browser'
complete -c wafd -n "__fish_wafd_using_subcommand dashboard" -s h -l help -d 'Print help'
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l listen -d 'address and port; port 0 is any that is free. It prints those it listens on' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l plain -d 'the same without TLS, where --listen has it: for clients that do not speak it' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l host -d 'a name or address by which HTTP may be asked, beside those of this machine; may be repeated' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l store -d 'folder of the store [$XDG_CACHE_HOME/wafd-serve, or ~/.cache/wafd-serve]' -r -f -a "(__fish_complete_directories)"
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l max-size -d 'of the store; what was not used longest goes first' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l quota -d 'of what a namespace holds, - is the common one; what it did not use longest goes first [none]' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l memory -d 'for contents that were asked for lately' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l tokens -d 'who may do what: lines of "NAME read|write NAMESPACE TOKEN", mode 0600; it is read again when it changes' -r -F
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l tls-cert -d 'certificates of this server, PEM; then all speak TLS' -r -F
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l tls-key -d 'their private key, PEM' -r -F
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l tls-client-ca -d 'clients have to show a certificate that one of these has signed' -r -F
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l log-writes -d 'a line of JSON for whatever somebody writes' -r -F
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l max-connections -d 'connections that have shown a token' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l max-blob -d 'of one blob or value' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l uploads -d 'memory for what comes in; the rest of it goes to files' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l rate -d 'requests per second and connection; 0 is any number' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l patience -d 'for what has begun and does not go on; for a greeting it is a sixth of this' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l workers -d 'threads that serve [one for two processors, at most 8]' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l new-token -d 'add a token to the file of --tokens, and print it; it may read' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l namespace -d 'its keys are its own namespace\'s; - is the common one' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l open-metrics -d '/metrics and /status take no token from this machine'
complete -c wafd -n "__fish_wafd_using_subcommand serve" -l write -d 'it may also write'
complete -c wafd -n "__fish_wafd_using_subcommand serve" -s h -l help -d 'Print help'
complete -c wafd -n "__fish_wafd_using_subcommand worker" -l slots -d 'how many commands run at once [the number of processors]' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand worker" -l property -d 'what the cluster is told of this machine besides OSFamily and ISA' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand worker" -l folder -d 'where inputs are kept and commands run [$XDG_CACHE_HOME/wafd-worker, or ~/.cache/wafd-worker]' -r -f -a "(__fish_complete_directories)"
complete -c wafd -n "__fish_wafd_using_subcommand worker" -l size -d 'how much of the disk inputs may take that no command uses' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand worker" -l name -d 'how logs and results call this worker; several may have the same name [the name of the machine]' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand worker" -l timeout -d 'how long a command may take at most' -r -f
complete -c wafd -n "__fish_wafd_using_subcommand worker" -l share -d 'a folder of this machine that commands may read, besides /usr, /etc, /opt and others of the system' -r -f -a "(__fish_complete_directories)"
complete -c wafd -n "__fish_wafd_using_subcommand worker" -l no-isolation -d 'run commands with all rights of this user, where namespaces are not permitted'
complete -c wafd -n "__fish_wafd_using_subcommand worker" -s h -l help -d 'Print help'
complete -c wafd -n "__fish_wafd_using_subcommand completion" -s h -l help -d 'Print help'
complete -c wafd -n '__fish_wafd_using_subcommand completion' -f -a 'bash zsh fish'
