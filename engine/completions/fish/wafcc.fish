# Written by utils/manual.py from what --help says: change that instead.
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -s s -d 'hits and misses; -v with all reasons'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l show-stats -d 'hits and misses; -v with all reasons'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l json
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -s v
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -s z -d 'begin counting anew'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l zero-stats -d 'begin counting anew'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l explain -F -d 'why the last request for that file, or for each of several, hit or missed, or the last ten'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l json
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -s C -d 'remove all entries'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l clear -d 'remove all entries'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -s c -d 'bring the store within its limit'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l cleanup -d 'bring the store within its limit'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l evict-older-than -x -d 'remove what was not used for so long (30d, 12h)'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -s M -x -d 'the store\'s limit (5G, 500Mi; 0 for none)'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l max-size -x -d 'the store\'s limit (5G, 500Mi; 0 for none)'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l audit -x -d 'compile that share of hits again when idle, and compare'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l audit-report -d 'what came of that; fails if a result was different'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -s p -d 'all settings, and where each comes from'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l show-config -d 'all settings, and where each comes from'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l json
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -s k -x -a "(wafcc --show-config 2>/dev/null | sed -n 's/^([^)]*) \\([a-z_]*\\) = .*/\\1/p')" -d 'one setting, or store, runtime_dir, config_path'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l get-config -x -a "(wafcc --show-config 2>/dev/null | sed -n 's/^([^)]*) \\([a-z_]*\\) = .*/\\1/p')" -d 'one setting, or store, runtime_dir, config_path'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -s o -x -a "(wafcc --show-config 2>/dev/null | sed -n 's/^([^)]*) \\([a-z_]*\\) = .*/\\1/p')" -d 'write one into the file of settings'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l set-config -x -a "(wafcc --show-config 2>/dev/null | sed -n 's/^([^)]*) \\([a-z_]*\\) = .*/\\1/p')" -d 'write one into the file of settings'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l new-signing-key -F -d 'make a key that signs uploads, and show its public half, for trusted_keys'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l shutdown -d 'end the engine of this store'
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -s V
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l version
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -s h
complete -c wafcc -n "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]" -l help
complete -c wafcc -n '__fish_is_nth_token 1' -a '(__fish_complete_command)'
complete -c wafcc -n '__fish_is_nth_token 1' -a run -d 'cache any command, not only compiles'
complete -c wafcc -n '__fish_seen_subcommand_from run' -l no-cache
complete -c wafcc -n '__fish_seen_subcommand_from run' -l output -r -F
