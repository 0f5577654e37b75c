/* "program NUMBER": the scene of this number. */
#include <stdlib.h>

void run_node(int number);

int main(int argc, char **argv) {
	run_node(argc > 1 ? atoi(argv[1]) : 0);
	return 0;
}
