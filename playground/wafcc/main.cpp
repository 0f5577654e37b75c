#include <iostream>

extern "C" const char *hello(void);
extern "C" const char *bye(void);

int main()
{
	std::cout << hello() << ", " << bye() << '\n';
}
