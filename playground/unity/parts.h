#ifndef PARTS_H
#define PARTS_H

int alpha();
int beta();
int gamma_();
int delta();
int epsilon();

// makes a function that nobody outside of a source sees, which only a compiler notices
#define PRIVATE(name, value) static int name() { return value; }

#endif
