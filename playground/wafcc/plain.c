#include "messages.h"

const char *plain(void) { return HELLO; }
