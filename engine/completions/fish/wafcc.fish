# Written by cargo run --example manual from what --help says: change that instead.
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -l explain -d 'why the last request for that file, or for each of several, hit or missed, or the last ten; --json for programs' -r -F
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -l evict-older-than -d 'remove what was not used for so long (30d, 12h)' -r -f
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -s M -l max-size -d 'the store\'s limit (5G, 500Mi; 0 for none)' -r -f
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -l audit -d 'compile that share of hits again when idle, and compare' -r -f
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -l new-signing-key -d 'make a key that signs uploads, and show its public half, for trusted_keys' -r -F
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -l debugger-settings -d 'what tells gdb and lldb where the sources of this checkout are, if it shares results; into .gdbinit or .lldbinit if you name one' -r -F
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -s k -l get-config -d 'one setting, or store, runtime_dir, config_path' -r -f -a "cache_dir\t''
disable\t''
read_only\t''
recache\t''
base_dir\t''
share_checkouts\t''
max_size\t''
compression\t''
namespace\t''
extra_files\t''
facts\t''
audit\t''
hard_link\t''
remote\t''
signing_key\t''
trusted_keys\t''
memory\t''
store\t''
runtime_dir\t''
config_path\t''"
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -s o -l set-config -d 'write one into the file of settings' -r -f -a "cache_dir=\t''
disable=\t''
read_only=\t''
recache=\t''
base_dir=\t''
share_checkouts=\t''
max_size=\t''
compression=\t''
namespace=\t''
extra_files=\t''
facts=\t''
audit=\t''
hard_link=\t''
remote=\t''
signing_key=\t''
trusted_keys=\t''
memory=\t''"
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -s s -l show-stats -d 'hits and misses; -v with all reasons, --json for programs'
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -s z -l zero-stats -d 'begin counting anew'
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -s C -l clear -d 'remove all entries'
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -s c -l cleanup -d 'bring the store within its limit'
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -l audit-report -d 'what came of that; fails if a result was different'
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -s p -l show-config -d 'all settings, and where each comes from; --json for programs'
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -l shutdown -d 'end the engine of this store'
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -l json -d 'with --show-stats, --show-config or --explain: for programs'
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -s v -l verbose -d 'with --show-stats: all reasons'
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -s h -l help -d 'Print help'
complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- "-*" (commandline -opc)[2]' -s V -l version -d 'Print version'
complete -c wafcc -n '__fish_is_nth_token 1' -a '(__fish_complete_command)'
complete -c wafcc -n '__fish_is_nth_token 1' -a run -d 'cache any command, not only compiles'
complete -c wafcc -n '__fish_seen_subcommand_from run' -l no-cache
complete -c wafcc -n '__fish_seen_subcommand_from run' -l output -r -F
