/* Greets its arguments; with "-" what it reads, and with "--forever" nobody, ever. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "greeting.h"

int main(int argc, char **argv)
{
	char name[100] = "";
	if (argc > 1 && strcmp(argv[1], "--forever") == 0)
		for (;;)
			pause();
	if (argc > 1 && strcmp(argv[1], "-") == 0) {
		size_t size = fread(name, 1, sizeof name - 1, stdin);
		name[size] = 0;
		printf("%s, %s\n", GREETING, name);
		return 0;
	}
	printf("%s", GREETING);
	for (int i = 1; i < argc; i++)
		printf(" %s", argv[i]);
	printf("\n");
	return 0;
}
