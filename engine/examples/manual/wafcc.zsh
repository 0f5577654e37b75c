
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
	elif ((CURRENT == 2)) && [[ $words[2] != -* ]]; then
		compadd run
		_command_names -e
	else
		_wafcc_options "$@"
	fi
}
if [ "$funcstack[1]" = "_wafcc" ]; then
	_wafcc "$@"
else
	compdef _wafcc wafcc
fi
