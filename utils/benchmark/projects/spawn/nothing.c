/* The program that is started: it does nothing, so that all its time is that of starting it. */

int main(void) {
	return 0;
}
