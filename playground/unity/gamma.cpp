#include "parts.h"

PRIVATE(hidden, 3)

int gamma_() { return hidden(); }
