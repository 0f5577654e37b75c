/* A library that is loaded while a program runs. */
int part(void);
int part(void) { return 1; }
