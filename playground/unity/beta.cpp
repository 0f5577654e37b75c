#include "parts.h"

#define LIMIT 20

// in one unit with alpha.cpp, pick(1) would be the other one
static int pick(long) { return LIMIT; }

int beta() { return pick(1); }
