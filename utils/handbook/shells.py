"""Completions: programs of bash, zsh and fish that offer the words of a help text."""

from typing import List, Sequence, Tuple

from .text import Help

MADE = "# Written by utils/manual.py from what --help says: change that instead.\n"
FILES = ("FILE", "OUTPUT")
FOLDERS = ("DIR", "FOLDER")
SHELLS = ("bash", "zsh", "fish")
# what the settings of wafcc are called, as it tells itself
KEYS = r"wafcc --show-config 2>/dev/null | sed -n 's/^([^)]*) \([a-z_]*\) = .*/\1/p'"
WORDS = "command waf --completion-words 2>/dev/null"


def fill(template: str, **values: str) -> str:
	for name, value in values.items():
		template = template.replace("@%s@" % name, value)
	return template


def offered(main: Help, rest: Sequence[Help]) -> List[Tuple[str, List[str]]]:
	"""By command, none first: the options that go with it."""
	known = {one.name.split()[-1]: one for one in rest}
	own = [flag for option in main.options for flag in option.flags + option.also]
	pairs = [("", own if not main.commands else ["--foreground", "--help", "--version"])]
	for command, _ in main.commands:
		flags = known[command].flags() if command in known else main.flags_of(command)
		pairs.append((command, [*dict.fromkeys([*flags, "--help"])]))
	return pairs


def all_flags(main: Help, rest: Sequence[Help], wanted: Sequence[str]) -> List[str]:
	found = [
		flag for one in (main, *rest) for option in one.options for flag in option.flags if option.metavar in wanted
	]
	return list(dict.fromkeys(found))


# ---- bash

BASH_WAFD = """\
_wafd() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= word
	COMPREPLY=()
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case $word in
		@COMMANDS@) command=$word; break ;;
		esac
	done
	case $prev in
	@FOLDERS@) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
	@FILES@) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
	@VALUES@) return ;;
	completion) mapfile -t COMPREPLY < <(compgen -W 'bash zsh fish' -- "$cur"); return ;;
	esac
	case $command in
@CASES@
	esac
}
complete -F _wafd wafd
"""
BASH_WAFCC = """\
_wafcc() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} first=${COMP_WORDS[1]}
	COMPREPLY=()
	if ((COMP_CWORD > 1)) && [[ $first != -* ]]; then
		if [[ $first == run && $cur == -* ]]; then
			mapfile -t COMPREPLY < <(compgen -W '--no-cache --output= --' -- "$cur")
			return
		fi
		# the words of a compiler or another command
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(if [[ $prev == -- ]]; then compgen -c -- "$cur"; fi; compgen -f -- "$cur")
		return
	fi
	case $prev in
	@FILES@) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
	-k|--get-config) mapfile -t COMPREPLY < <(compgen -W "$(@KEYS@)" -- "$cur"); return ;;
	-o|--set-config)
		compopt -o nospace 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -S = -W "$(@KEYS@)" -- "$cur")
		return ;;
	@VALUES@) return ;;
	esac
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W '@FLAGS@' -- "$cur")
	elif ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W run -- "$cur"; compgen -c -- "$cur")
	fi
}
complete -F _wafcc wafcc
"""
BASH_WAF = """\
_waf() {
	local cur=${COMP_WORDS[COMP_CWORD]} words
	COMPREPLY=()
	words=$(@WORDS@ | cut -f1)
	if [[ $cur == -* ]] || ((COMP_CWORD == 1)) || [[ ${COMP_WORDS[COMP_CWORD-1]} != -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
		if [[ $cur != -* ]]; then
			mapfile -t COMPREPLY < <(printf '%s\\n' "${COMPREPLY[@]}" | grep -v '^-')
		fi
	fi
	if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then
		compopt -o nospace 2>/dev/null
	fi
}
complete -o bashdefault -o default -F _waf waf
"""


def bash(main: Help, rest: Sequence[Help] = ()) -> str:
	if main.name == "waf":
		return MADE + fill(BASH_WAF, WORDS=WORDS)
	others = [
		f for f in all_flags(main, rest, metavars(main, rest)) if f not in ("-k", "--get-config", "-o", "--set-config")
	]
	values = {
		"FILES": "|".join(all_flags(main, rest, FILES)),
		"FOLDERS": "|".join(all_flags(main, rest, FOLDERS)),
		"VALUES": "|".join(others),
		"COMMANDS": "|".join(name for name, _ in main.commands),
		"FLAGS": " ".join(offered(main, rest)[0][1]),
		"KEYS": KEYS,
	}
	cases = []
	for command, flags in offered(main, rest):
		words = " ".join(([name for name, _ in main.commands] if not command else []) + flags)
		cases.append("\t%s) mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\") ;;" % (command or "''", words))
	return MADE + fill(BASH_WAFCC if main.name == "wafcc" else BASH_WAFD, CASES="\n".join(cases), **values)


def metavars(main: Help, rest: Sequence[Help]) -> List[str]:
	"""Those whose values nobody knows."""
	found = {option.metavar for one in (main, *rest) for option in one.options if option.metavar}
	return sorted(found.difference(FILES, FOLDERS))


# ---- zsh


def quote(text: str) -> str:
	return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh_option(flag: str, one: Help) -> str:
	option = one.option(flag)
	action = ":%s:%s" % (option.metavar.lower(), zsh_values(flag, option.metavar)) if option.metavar else ""
	equals = "=" if option.metavar and flag.startswith("--") else ""
	return "'%s%s[%s]%s'" % (flag, equals, quote(option.text), action.replace("'", "'\\''"))


def zsh_values(flag: str, metavar: str) -> str:
	if metavar in FILES:
		return "_files"
	if metavar in FOLDERS:
		return "_files -/"
	return "_wafcc_keys" if flag in ("-k", "--get-config", "-o", "--set-config") else " "


ZSH_END = """\
if [ "$funcstack[1]" = "@NAME@" ]; then
	@NAME@ "$@"
else
	compdef @NAME@ @PROGRAM@
fi
"""
ZSH_WAFD = """\
_wafd() {
	local context state state_descr line
	typeset -A opt_args
	_arguments -C @TOP@ '1:command:->command' '*::argument:->argument'
	case $state in
	command)
		local -a commands
		commands=(@COMMANDS@)
		_describe command commands ;;
	argument)
		case $line[1] in
@CASES@
		completion) _arguments '1:shell:(bash zsh fish)' ;;
		esac ;;
	esac
}
"""
ZSH_WAFCC = """\
_wafcc_keys() {
	local -a keys
	keys=(${(f)"$(@KEYS@)"})
	_describe setting keys
}
_wafcc() {
	if ((CURRENT > 2)) && [[ $words[2] != -* ]]; then
		# the words of a compiler or another command
		if [[ $words[2] == run && $words[CURRENT] == -* ]]; then
			compadd -- --no-cache --output= --
			return
		fi
		shift words
		((CURRENT--))
		_normal
		return
	fi
	_arguments @TOP@ '1:command:{compadd run; _command_names -e}'
}
"""
ZSH_WAF = """\
_waf() {
	local -a entries
	local line
	for line in ${(f)"$(@WORDS@)"}; do
		entries+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
	done
	_describe -o waf entries || _files
}
"""


def zsh(main: Help, rest: Sequence[Help] = ()) -> str:
	known = {one.name.split()[-1]: one for one in rest}
	cases = []
	for command, flags in offered(main, rest)[1:]:
		if command != "completion":
			words = " ".join(zsh_option(flag, known.get(command, main)) for flag in flags)
			cases.append("\t\t%s) _arguments %s ;;" % (command, words))
	top = [zsh_option(flag, main) for flag in offered(main, rest)[0][1]]
	commands = " ".join("'%s:%s'" % (name, quote(text)) for name, text in main.commands)
	template = {"wafd": ZSH_WAFD, "wafcc": ZSH_WAFCC, "waf": ZSH_WAF}[main.name]
	body = fill(template, TOP=" ".join(top), COMMANDS=commands, CASES="\n".join(cases), KEYS=KEYS, WORDS=WORDS)
	return "#compdef %s\n" % main.name + MADE + body + fill(ZSH_END, NAME="_" + main.name, PROGRAM=main.name)


# ---- fish


def fish(main: Help, rest: Sequence[Help] = ()) -> str:
	if main.name == "waf":
		return MADE + "complete -c waf -a '(%s)'\n" % WORDS
	known = {one.name.split()[-1]: one for one in rest}
	lines = ["complete -c %s -f" % main.name] if main.commands else []
	names = " ".join(name for name, _ in main.commands)
	nothing = (
		"not __fish_seen_subcommand_from %s" % names
		if names
		else "__fish_is_nth_token 1; or string match -q -- '-*' (commandline -opc)[2]"
	)
	for name, text in main.commands:
		lines.append("complete -c %s -n '%s' -a %s -d '%s'" % (main.name, nothing, name, fish_quote(text)))
	for command, flags in offered(main, rest):
		condition = "__fish_seen_subcommand_from %s" % command if command else nothing
		lines += [fish_option(main.name, condition, flag, known.get(command, main)) for flag in flags]
		if command == "completion":
			lines.append("complete -c %s -n '%s' -a 'bash zsh fish'" % (main.name, condition))
	if main.name == "wafcc":
		lines.append("complete -c wafcc -n '__fish_is_nth_token 1' -a '(__fish_complete_command)'")
		lines.append("complete -c wafcc -n '__fish_is_nth_token 1' -a run -d 'cache any command, not only compiles'")
		lines.append("complete -c wafcc -n '__fish_seen_subcommand_from run' -l no-cache")
		lines.append("complete -c wafcc -n '__fish_seen_subcommand_from run' -l output -r -F")
	return MADE + "\n".join(lines) + "\n"


def fish_option(program: str, condition: str, flag: str, one: Help) -> str:
	option = one.option(flag)
	words = [
		"complete -c",
		program,
		"-n",
		'"%s"' % condition,
		"-l" if flag.startswith("--") else "-s",
		flag.lstrip("-"),
	]
	if option.metavar in FILES:
		words.append("-r -F" if not option.spec.count("[") else "-F")
	elif option.metavar in FOLDERS:
		words.append("-x -a '(__fish_complete_directories)'")
	elif flag in ("-k", "--get-config", "-o", "--set-config"):
		words.append('-x -a "(%s)"' % KEYS.replace("\\", "\\\\").replace("$", "\\$"))
	elif option.metavar:
		words.append("-x")
	return " ".join(words + (["-d '%s'" % fish_quote(option.text)] if option.text else []))


def fish_quote(text: str) -> str:
	return text.replace("\\", "\\\\").replace("'", "\\'")
