/* Gives a command large pages for large allocations. gcc's collector allocates two megabytes at a time and then touches them page by page,
 * which costs a small compile some hundred page faults.
 *
 * This is done only in commands of parked programs, only as advice, and only if the system lets programs ask for it ("madvise"). */
#define _GNU_SOURCE
#include "park.h"
#include "system.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/types.h>

#define LARGE (2ul << 20)

static int is_enabled;

HIDDEN void wafpark_enlarge_pages(void) {
	is_enabled = 1;
}

EXPORT void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset) {
	long place = SYSTEM(SYS_mmap, address, size, protection, flags, file, offset);
	if (place < 0 && place > -4096) {
		errno = (int)-place;
		return MAP_FAILED;
	}
	const int wanted = MAP_PRIVATE | MAP_ANONYMOUS, other = MAP_FIXED | MAP_STACK | MAP_NORESERVE | MAP_HUGETLB | MAP_GROWSDOWN;
	int is_plain = (flags & (wanted | other)) == wanted && (protection & PROT_WRITE);
	if (is_enabled && is_plain && size >= LARGE && size < 2 * LARGE && place % (long)LARGE == 0)
		SYSTEM(SYS_madvise, place, LARGE, MADV_HUGEPAGE);
	return (void *)place;
}

EXPORT void *mmap64(void *address, size_t size, int protection, int flags, int file, off_t offset);
EXPORT void *mmap64(void *address, size_t size, int protection, int flags, int file, off_t offset) {
	return mmap(address, size, protection, flags, file, offset);
}
