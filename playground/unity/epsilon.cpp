#include "parts.h"

// unity: alone

int epsilon() { return __LINE__; }
