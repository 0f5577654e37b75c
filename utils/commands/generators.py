"""What generates sources, catalogs and pages."""

from .command import Everyday

LEX = "%option noyywrap\n%%\n[0-9]+ { return 1; }\n.|\\n { return 2; }\n%%\n"
YACC = "%token A\n%{\nint yylex(void);\nvoid yyerror(const char *);\n%}\n%%\nall: | all A;\n%%\n"
M4 = "define(`twice', `$1$1')dnl\ntwice(one)\n"
PROTO = 'syntax = "proto3";\nmessage One {\n\tstring name = 1;\n\tint32 number = 2;\n}\n'
SWIG = "%module one\n%inline %{\nint one(int n) { return n + 1; }\n%}\n"
XML = '<?xml version="1.0"?>\n<list><item>one</item><item>two</item></list>\n'
XSL = """\
<?xml version="1.0"?>
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:template match="/"><xsl:for-each select="list/item"><xsl:value-of select="."/>;</xsl:for-each></xsl:template>
</xsl:stylesheet>
"""
PO = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "one"\nmsgstr "eins"\n'
POD = "=head1 NAME\n\none - a page\n\n=head1 DESCRIPTION\n\nIt is B<short>.\n\n=cut\n"
RPC = "program ONE {\n\tversion V {\n\t\tint GET(void) = 1;\n\t} = 1;\n} = 0x20000001;\n"
CONFIGURE = "AC_INIT([one], [1])\nAC_CONFIG_FILES([out])\nAC_OUTPUT\n"

COMMANDS = (
	Everyday("flex", "flex -o scan.c scan.l", {"scan.l": LEX}),
	Everyday("bison", "bison -d -o parse.c parse.y", {"parse.y": YACC}),
	Everyday("m4", "m4 in.m4 > out", {"in.m4": M4}, "sh", also=("m4",)),
	Everyday("protoc", "protoc --cpp_out=. one.proto", {"one.proto": PROTO}),
	Everyday("protoc-python", "protoc --python_out=. one.proto", {"one.proto": PROTO}),
	Everyday("swig", "swig -python one.i", {"one.i": SWIG}),
	Everyday("xsltproc", "xsltproc -o out style.xsl in.xml", {"style.xsl": XSL, "in.xml": XML}),
	Everyday("msgfmt", "msgfmt -o out.mo in.po", {"in.po": PO}),
	Everyday("pod2man", "pod2man in.pod out.1", {"in.pod": POD}),
	Everyday("rpcgen", "rpcgen -h -o one.h one.x", {"one.x": RPC}),
	Everyday("autoconf", "autoconf", {"configure.ac": CONFIGURE, "out.in": "@PACKAGE_NAME@\n"}, also=("m4", "perl")),
)
