#include <cstdio>
#include "parts.h"

int main() {
	std::printf("%d %d %d %d %d\n", alpha(), beta(), gamma_(), delta(), epsilon());
	return 0;
}
