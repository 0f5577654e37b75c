/* Makes sure that a program makes system calls by libc's functions only, which are watched.
 *
 * Some programs contain instructions for system calls that hardly ever run: those of a library that they use a part of. Whether one runs
 * is known to the kernel: it sends a signal for each call that does not come from libc's own code ("syscall user dispatch", Linux 5.11).
 * Calls of the loader and of the kernel's own object are then made as they are. After any other one, nothing more is known of the command. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <threads.h>
#include <ucontext.h>

#if defined(__x86_64__)

#define REAL(result, name, parameters)                                                                                       \
	static result(*real) parameters;                                                                                         \
	if (!real)                                                                                                               \
		*(void **)(&real) = wafpark_find(#name);

/* linux/prctl.h, which older systems do not have in this version. */
#define SET_DISPATCH 59
#define DISPATCH_ON 1
enum { LET_PASS, REPORT };

HIDDEN const void *wafpark_gate;

/* What the kernel does with calls from outside of libc, in all threads. */
static volatile char choice = LET_PASS;

struct code {
	uintptr_t start, size;
};
static struct code libc_code, loader_code, kernel_code;

static int is_in(const struct code *code, uintptr_t address) {
	return address - code->start < code->size;
}

/* The code of the object in which an address is. */
struct search {
	uintptr_t address;
	struct code found;
};

static int search_object(struct dl_phdr_info *object, size_t size, void *data) {
	struct search *search = data;
	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		const struct code code = {object->dlpi_addr + part->p_vaddr, part->p_memsz};
		if (part->p_type == PT_LOAD && (part->p_flags & PF_X) && is_in(&code, search->address)) {
			search->found = code;
			return 1;
		}
	}
	return 0;
}

static struct code find_code(uintptr_t address) {
	struct search search = {.address = address};
	dl_iterate_phdr(search_object, &search);
	return search.found;
}

/* `syscall; ret` in a small function of libc, by which our own calls go. */
static const void *find_gate(void) {
	const unsigned char *at = wafpark_find("getuid");
	for (int i = 0; at && i < 24; i++)
		if (at[i] == 0x0f && at[i + 1] == 0x05 && at[i + 2] == 0xc3)
			return at + i;
	return NULL;
}

static void give_up(void) {
	choice = LET_PASS;
	wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_CALL, "");
}

static void on_call(int number, siginfo_t *info, void *context) {
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	const uintptr_t address = (uintptr_t)info->si_call_addr;
	(void)number;
	if (is_in(&loader_code, address - 1) || is_in(&kernel_code, address - 1)) {
		registers[REG_RAX] = system6(info->si_syscall, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
		                             registers[REG_R10], registers[REG_R8], registers[REG_R9]);
		return;
	}
	give_up();
	/* The instruction, of two bytes, runs once more. */
	registers[REG_RIP] = (greg_t)(address - 2);
	registers[REG_RAX] = info->si_syscall;
}

static int guard_thread(void) {
	return SYSTEM(SYS_prctl, SET_DISPATCH, DISPATCH_ON, libc_code.start, libc_code.size, &choice) == 0;
}

HIDDEN void wafpark_guard(void) {
	REAL(int, sigaction, (int, const struct sigaction *, struct sigaction *))
	/* Not on the program's stack for signals, which may be small. */
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER};
	action.sa_sigaction = on_call;
	wafpark_gate = find_gate();
	libc_code = find_code((uintptr_t)wafpark_gate);
	loader_code = find_code((uintptr_t)wafpark_find("__tls_get_addr"));
	kernel_code = (struct code){wafpark_ask_kernel(AT_SYSINFO_EHDR), 2 * 4096};
	if (!wafpark_gate || !libc_code.size || !real || real(SIGSYS, &action, NULL) != 0 || !guard_thread()) {
		give_up();
		return;
	}
	choice = REPORT;
	wafpark_note_word(WAFPARK_GUARDED, 0, "");
}

static int is_guarded(void) {
	return choice == REPORT;
}

HIDDEN void wafpark_leave_guard(void) {
	if (is_guarded())
		give_up();
}

/* ---- what would take the guard away */

/* What a new thread does first. */
static struct start {
	void *(*function)(void *);
	void *argument;
	int is_taken;
} starts[64];
enum { STARTS = sizeof starts / sizeof *starts };

static void *begin_thread(void *place) {
	struct start *start = place;
	void *(*const function)(void *) = start->function;
	void *const argument = start->argument;
	__atomic_store_n(&start->is_taken, 0, __ATOMIC_RELEASE);
	if (!guard_thread())
		give_up();
	return function(argument);
}

static struct start *take_start(void) {
	for (int i = 0; i < STARTS; i++) {
		int none = 0;
		if (__atomic_compare_exchange_n(&starts[i].is_taken, &none, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return &starts[i];
	}
	return NULL;
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument) {
	REAL(int, pthread_create, (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))
	if (!real)
		return ENOSYS;
	if (!is_guarded())
		return real(thread, attributes, function, argument);
	struct start *start = take_start();
	if (!start) {
		give_up();
		return real(thread, attributes, function, argument);
	}
	start->function = function;
	start->argument = argument;
	const int result = real(thread, attributes, begin_thread, start);
	if (result)
		__atomic_store_n(&start->is_taken, 0, __ATOMIC_RELEASE);
	return result;
}

EXPORT pid_t fork(void) {
	REAL(pid_t, fork, (void))
	if (!real) {
		errno = ENOSYS;
		return -1;
	}
	const pid_t result = real();
	if (result == 0 && is_guarded() && !guard_thread())
		give_up();
	return result;
}

/* C's own threads begin inside of libc. */
EXPORT int thrd_create(thrd_t *thread, thrd_start_t function, void *argument) {
	REAL(int, thrd_create, (thrd_t *, thrd_start_t, void *))
	wafpark_leave_guard();
	return real ? real(thread, function, argument) : thrd_error;
}

EXPORT int prctl(int option, ...) {
	va_list list;
	va_start(list, option);
	const long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long), d = va_arg(list, long);
	va_end(list);
	if (option == SET_DISPATCH)
		wafpark_leave_guard();
	const long result = SYSTEM(SYS_prctl, option, a, b, c, d);
	if (result < 0 && result > -4096) {
		errno = (int)-result;
		return -1;
	}
	return (int)result;
}

/* The kernel ends a program that makes a call from elsewhere while it blocks the signal. So ours is never blocked, nor are the two that
 * glibc keeps for itself. */
static long set_mask(int how, const sigset_t *set, sigset_t *old) {
	uint64_t mask = set ? *(const uint64_t *)(const void *)set : 0;
	const uint64_t own_of_libc = 3ull << 31, ours = 1ull << (SIGSYS - 1);
	if (how != SIG_UNBLOCK)
		mask &= ~(own_of_libc | (is_guarded() ? ours : 0));
	return SYSTEM(SYS_rt_sigprocmask, how, set ? &mask : NULL, old, sizeof mask);
}

EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) {
	return (int)-set_mask(how, set, old);
}

EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old) {
	const long result = set_mask(how, set, old);
	if (result < 0)
		errno = (int)-result;
	return result < 0 ? -1 : 0;
}

#else

HIDDEN void wafpark_guard(void) {
	wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_CALL, "");
}

HIDDEN void wafpark_leave_guard(void) {
}

#endif
