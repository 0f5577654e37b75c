"""What reads a text and writes another one."""

from .command import Everyday
from .pieces import TEXT, WORDS

OTHER = WORDS.replace("seven", "SEVEN")
TWO = {"in": WORDS, "other": OTHER}
PATCH = "--- in\n+++ in\n@@ -1,3 +1,3 @@\n-one 0 \n+ONE 0 \n two 1 x\n three 2 xx\n"
JSON = '{"b": [1, 2, {"c": null}], "a": "text"}\n'
MAN = ".TH ONE 1\n.SH NAME\none \\- a page\n.SH DESCRIPTION\nIt is\n.B short.\n"

COMMANDS = (
	Everyday("sort", "sort -o out in", TEXT),
	Everyday("sort-printed", "sort -u in", TEXT),
	Everyday("sed", "sed -e s/one/ONE/ in", TEXT),
	Everyday("sed-i", "sed -i -e s/one/ONE/ in", TEXT),
	Everyday("grep", "grep -n e in", TEXT),
	Everyday("grep-r", "grep -r e sub > out", {"sub/in": WORDS, "sub/b/in": WORDS}, shell="sh", also=("grep",)),
	Everyday("awk", "awk '{ print $2, $1 }' in", TEXT),
	Everyday("mawk", "mawk '{ n += $2; print n > \"out\" }' in", TEXT),
	Everyday("gawk", "gawk '{ n += $2; print n > \"out\" }' in", TEXT),
	Everyday("pipe", "cut -d' ' -f2 in | tr 0-9 a-j | sort | uniq -c > out", TEXT, "sh", also=("cut", "tr", "uniq")),
	Everyday("head-tail", "head -n 20 in | tail -n 5 > out", TEXT, "sh", also=("head", "tail")),
	Everyday("wc", "wc in", TEXT),
	Everyday("diff", "diff -u --label a --label b in other", TWO, status=1),
	Everyday("comm", "comm in other", {"in": "a\nb\n", "other": "b\nc\n"}),
	Everyday("join", "join in other", {"in": "a 1\nb 2\n", "other": "a 3\nb 4\n"}),
	Everyday("paste", "paste in other", TWO),
	Everyday("patch", "patch -s in in.patch", {"in.patch": PATCH, **TEXT}),
	Everyday("split", "split -l 10 in part.", TEXT),
	Everyday("csplit", "csplit -s in /ten/", TEXT),
	Everyday("tee", "sort in | tee out", TEXT, "sh", also=("sort", "tee")),
	Everyday("nl", "nl in", TEXT),
	Everyday("tac", "tac in", TEXT),
	Everyday("fold", "fold -w 8 in", TEXT),
	Everyday("expand", "expand in", {"in": "\ta\tb\n"}),
	Everyday("iconv", "iconv -f UTF-8 -t UTF-16 -o out in", {"in": "straße\n"}),
	Everyday("envsubst", "A=b envsubst < in > out", {"in": "a ${A}\n"}, "sh", also=("envsubst",)),
	Everyday("shuf", "shuf -o out in", TEXT),
	Everyday("shuf-seeded", "shuf --random-source=seed -o out in", {"seed": WORDS * 4, **TEXT}),
	Everyday("base64", "base64 in", TEXT),
	Everyday("od", "od -c in", TEXT),
	Everyday("xxd", "xxd -i in out.h", TEXT),
	Everyday("sha256sum", "sha256sum in", TEXT),
	Everyday("md5sum", "md5sum in > out", TEXT, "sh", also=("md5sum",)),
	Everyday("cksum", "cksum in", TEXT),
	Everyday("openssl", "openssl dgst -sha256 -out out in", TEXT),
	Everyday("jq", "jq -S . in.json", {"in.json": JSON}),
	Everyday("groff", "groff -Tascii -man in.1", {"in.1": MAN}),
	Everyday("troff", "troff -Tascii in.1", {"in.1": MAN}),
)
