%{
int yylex(void);
void yyerror(const char *text);
%}
%token NUMBER
%%
sum: NUMBER | sum '+' NUMBER;
%%
