#include <stdio.h>

int second(void);

int main(void)
{
	printf("%s %d\n", __FILE__, second());
	return 0;
}
