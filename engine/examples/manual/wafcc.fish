complete -c wafcc -n '__fish_is_nth_token 1' -a '(__fish_complete_command)'
complete -c wafcc -n '__fish_is_nth_token 1' -a run -d 'cache any command, not only compiles'
complete -c wafcc -n '__fish_seen_subcommand_from run' -l no-cache
complete -c wafcc -n '__fish_seen_subcommand_from run' -l output -r -F
