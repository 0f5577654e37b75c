#include "parts.h"

// has a macro and a function of its own, as beta.cpp has
#define LIMIT 10

static int pick(int) { return LIMIT; }

int alpha() { return pick(1); }
