#include "messages.h"

const char *hello(void) { return HELLO; }
const char *bye(void) { return BYE; }
