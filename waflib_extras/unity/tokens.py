"""
The tokens of C and C++, and the keywords that matter here.
"""

import re

TOKEN = re.compile(
	r"""
	^[ \t]*\#(?:[^\n\\/]|\\(?:\n|.)|/(?![*/])|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|//(?:[^\\\n]|\\(?:\n|.))*)*
	|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/
	|//(?:[^\\\n]|\\(?:\n|.))*
	|(?:u8|[uUL])?"(?:[^"\\\n]|\\(?:\n|.))*"
	|(?:u8|[uUL])?'(?:[^'\\\n]|\\(?:\n|.))*'
	|\.?[0-9](?:[eEpP][+-]|'?[.\w])*
	|[A-Za-z_$\x80-\xff][\w$\x80-\xff]*
	|::|->|\.\.\.|\S
	""",
	re.VERBOSE | re.MULTILINE,
)
RAW = re.compile(r'(?:u8|[uUL])?R"([^()\\\s]{0,16})\([\s\S]*?\)\1"')
WORD = re.compile(r"[A-Za-z_$\x80-\xff][\w$\x80-\xff]*")
COMMENT = re.compile(r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|//.*|\\\n")
TYPES = frozenset(("class", "struct", "union", "enum"))
ATTRIBUTES = frozenset(("__attribute__", "__declspec", "alignas", "_Alignas", "noexcept", "decltype", "__asm__", "asm"))
KEYWORDS = frozenset(
	WORD.findall(
		"""
	_Bool __attribute__ __const __extension__ __inline __inline__ __restrict alignas alignof auto bool break
	case catch char char16_t char32_t char8_t class const const_cast consteval constexpr constinit continue
	decltype default defined delete do double dynamic_cast else enum explicit export extern false final float
	for friend goto if inline int long mutable namespace new noexcept nullptr operator override private
	protected public register reinterpret_cast restrict return short signed sizeof static static_assert
	static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned
	using virtual void volatile wchar_t while
	"""
	)
)
