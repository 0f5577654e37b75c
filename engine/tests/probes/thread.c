/* Blocks of threads as some libc might lay them out, and what our library makes of them: a line for each. */
#include "../../park/thread.c"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WORDS 1024

static int block[WORDS];

/* Which words a libc sets when it forks. */
static const int *kept;
static int kept_count, refuses;

HIDDEN void *wafpark_find(const char *name) {
	(void)name;
	return NULL;
}

/* A fork of a libc with such a block. */
static int fork_of_fake(void) {
	if (refuses)
		return -1;
	const long child = SYSTEM(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	for (int i = 0; child == 0 && i < kept_count; i++)
		block[kept[i]] = (int)SYSTEM(SYS_gettid);
	return (int)child;
}

static void fill(const int *places, int count) {
	memset(block, 0, sizeof block);
	for (int i = 0; i < count; i++)
		block[places[i]] = (int)SYSTEM(SYS_gettid);
}

static void show(const char *name, unsigned count, int **words) {
	printf("%s:", name);
	for (unsigned i = 0; i < count; i++)
		printf(" %d", (int)(words[i] - block));
	printf("\n");
}

/* The words of `held` hold the number, and libc sets those of `set`. */
static void try(const char *name, const int *held, int held_count, const int *set, int set_count) {
	int *words[MOST];
	fill(held, held_count);
	kept = set, kept_count = set_count;
	unsigned count = find_words(block, block + WORDS, (int)SYSTEM(SYS_gettid), words);
	const int has_forked = keep_words_of_fork(words, &count, fork_of_fake);
	show(has_forked ? name : "it could not fork", count, words);
}

int main(void) {
	const int one[] = {180}, first[] = {0}, last[] = {WORDS - 1}, two[] = {12, 180}, three[] = {12, 180, 700}, far[] = {700};
	int many[MOST + 1], *words[MOST];
	const int *to;
	int *from;
	try("glibc 2.36", one, 1, one, 1);
	try("at the beginning", first, 1, first, 1);
	try("at the end", last, 1, last, 1);
	try("the number of the process beside it", two, 2, two, 2);
	try("another word has the same value", three, 3, one, 1);
	try("moved", far, 1, far, 1);
	try("not kept", NULL, 0, NULL, 0);
	try("kept, and not set", one, 1, NULL, 0);
	refuses = 1;
	try("", one, 1, one, 1);
	for (int i = 0; i <= MOST; i++)
		many[i] = i * 3;
	fill(many, MOST + 1);
	printf("too many: %u\n", find_words(block, block + WORDS, (int)SYSTEM(SYS_gettid), words));
	fill(two, 2);
	unsigned count = find_words(block, block + WORDS, (int)SYSTEM(SYS_gettid), words);
	keep_words_without_fork(words, &count, block + 180);
	show("registered", count, words);
	count = find_words(block, block + WORDS, (int)SYSTEM(SYS_gettid), words);
	keep_words_without_fork(words, &count, NULL);
	show("one of two", count, words);
	fill(far, 1);
	count = find_words(block, block + WORDS, (int)SYSTEM(SYS_gettid), words);
	keep_words_without_fork(words, &count, block + 3);
	show("the only one", count, words);
	/* A page that cannot be read is the end. */
	char *pages = mmap(NULL, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(pages + 4096, 4096, PROT_NONE);
	munmap(pages + 4 * 4096, 4096);
	find_block(pages + 2 * 4096 + 100, &from, &to);
	printf("readable: %d to %d\n", (int)((char *)from - pages) / 4096, (int)((const char *)to - pages) / 4096);
	/* Without libc's functions, nothing contradicts. */
	printf("proved by nothing: %d\n", prove_thread());
	return 0;
}
