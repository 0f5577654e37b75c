/* The kernel's own calls: no libc of any version between us and it, and errno stays the program's. */
#ifndef WAFPARK_SYSTEM_H
#define WAFPARK_SYSTEM_H

#include <sys/syscall.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define EXPORT __attribute__((visibility("default")))

#if defined(__x86_64__)
/* Where libc makes system calls, if those from elsewhere are reported (`guard.c`); else NULL. */
#ifdef WAFPARK_GATE
extern HIDDEN const void *wafpark_gate;
#endif

static inline long system6(long number, long a, long b, long c, long d, long e, long f) {
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;
#ifdef WAFPARK_GATE
	if (wafpark_gate) {
		__asm__ volatile("call *%[gate]"
		                 : "=a"(result)
		                 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9), [gate] "m"(wafpark_gate)
		                 : "rcx", "r11", "memory");
		return result;
	}
#endif
	__asm__ volatile("syscall"
	                 : "=a"(result)
	                 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
	                 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
static inline long system6(long number, long a, long b, long c, long d, long e, long f) {
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
}
#else
#error "parking knows x86-64 and arm64 only"
#endif

/* The result of a system call, negative if it failed: minus the errno. */
#define SYSTEM_PICK(_1, _2, _3, _4, _5, _6, _7, name, ...) name
#define SYSTEM0(n) system6(n, 0, 0, 0, 0, 0, 0)
#define SYSTEM1(n, a) system6(n, (long)(a), 0, 0, 0, 0, 0)
#define SYSTEM2(n, a, b) system6(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define SYSTEM3(n, a, b, c) system6(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define SYSTEM4(n, a, b, c, d) system6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define SYSTEM5(n, a, b, c, d, e) system6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define SYSTEM6(n, a, b, c, d, e, f) system6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define SYSTEM(...) SYSTEM_PICK(__VA_ARGS__, SYSTEM6, SYSTEM5, SYSTEM4, SYSTEM3, SYSTEM2, SYSTEM1, SYSTEM0, 0)(__VA_ARGS__)

__attribute__((noreturn)) static inline void leave(int status) {
	for (;;)
		SYSTEM(SYS_exit_group, status);
}

#endif
