#include "parts.h"

// the same name as in gamma.cpp: found when both do not compile together
PRIVATE(hidden, 4)

int delta() { return hidden(); }
