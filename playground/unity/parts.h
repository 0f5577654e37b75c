#ifndef PARTS_H
#define PARTS_H

int alpha();
int beta();
int gamma_();
int delta();
int epsilon();

// makes a function that is not seen outside of a source, which only a compiler notices
#define PRIVATE(name, value) static int name() { return value; }

#endif
