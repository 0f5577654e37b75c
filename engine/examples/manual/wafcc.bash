
_wafcc() {
	local cur=$2 prev=$3 first=${COMP_WORDS[1]}
	COMPREPLY=()
	if ((COMP_CWORD > 1)) && [[ $first != -* ]]; then
		if [[ $first == run && $cur == -* ]]; then
			mapfile -t COMPREPLY < <(compgen -W '--no-cache --output= --' -- "$cur")
			return
		fi
		# the words of a compiler or another command
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(if [[ $prev == -- ]]; then compgen -c -- "$cur"; fi; compgen -f -- "$cur")
	elif ((COMP_CWORD == 1)) && [[ $cur != -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W run -- "$cur"; compgen -c -- "$cur")
	else
		_wafcc_options "$@"
		if [[ ${COMPREPLY[0]} == *= ]]; then
			compopt -o nospace 2>/dev/null
		fi
	fi
}
complete -F _wafcc wafcc
